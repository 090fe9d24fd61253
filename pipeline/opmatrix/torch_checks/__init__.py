"""The checks of `register` on a torch library: kernel, property test, invalid calls, opcheck, gradient, export."""
