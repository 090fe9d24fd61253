"""One module per stage, named as its command, which reads and writes files. A stage never imports another."""
