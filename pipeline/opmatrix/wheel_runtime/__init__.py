"""What a wheel of operators runs, beside what it takes from other rooms: it is copied into each wheel."""
