"""Runs read from disk, in groups: what figures, tables and sentences are made of."""
