"""What follows from an OpSpec: read, validated, versioned, published; signatures and size expressions."""
