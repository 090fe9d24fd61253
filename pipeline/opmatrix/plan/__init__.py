"""The steps and the keys that decide whether they run. Runs nothing."""
