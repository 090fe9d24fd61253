"""The step graph and the keys that decide which steps run again. Runs nothing."""
