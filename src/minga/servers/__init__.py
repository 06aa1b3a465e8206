"""Parameter servers that survive: their shard on disk, and what servers and workers agree on when ranks form anew."""
