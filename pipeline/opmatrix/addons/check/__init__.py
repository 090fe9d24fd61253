"""The checks of `doit check` on a user's model; each result is a finding: a sentence and its remedy."""
