"""Exported models: both exporters, what a model must be, and the gates that hold it to that."""
