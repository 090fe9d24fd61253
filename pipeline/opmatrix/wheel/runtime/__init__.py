"""The code that a wheel of operators runs. `doit dist` copies it into each wheel, with all that it imports."""
