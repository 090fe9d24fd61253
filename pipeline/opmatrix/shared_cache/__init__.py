"""Results of steps that clones, machines and CI jobs share: where they are kept, and what an entry is."""
