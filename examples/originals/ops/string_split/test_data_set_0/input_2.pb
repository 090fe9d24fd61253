	B
skip_emptyJ