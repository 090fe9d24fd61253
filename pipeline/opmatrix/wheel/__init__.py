"""Settings, contents and packing of the wheel that `doit dist` builds."""
