"""What follows from an OpSpec: read, validated, published, and which models and cases it has."""
