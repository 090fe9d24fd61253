"""What register proves of a torch library: opcheck, gradcheck, property test, kernel check, invalid calls."""
