"""One module per stage, with the name of its command: it reads files, tests or makes something, and writes files.

A stage never imports another.
"""
