"""Export models with both exporters of torch, and check each model against the declaration."""
