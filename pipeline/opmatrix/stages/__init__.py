"""The stages: each reads files, proves something, and writes files. A stage never imports another."""
