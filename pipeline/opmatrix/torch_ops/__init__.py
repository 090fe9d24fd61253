"""The compiled torch library: load it, call it, and what the running torch supports."""
