"""What `doit check` asks of a model that somebody brings: findings, each a sentence with its remedy."""
