"""What `doit dist` ships: its settings, what the wheel holds, and how that is packed."""
