"""The compiled torch library: loading it, calling it, and holding it against declaration and data."""
