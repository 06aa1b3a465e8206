"""Data sets: where they are, how they are read, which rank takes which samples."""
