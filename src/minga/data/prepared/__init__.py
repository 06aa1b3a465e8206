"""Prepared sets: folders with a manifest and shards that are read through memory maps."""
