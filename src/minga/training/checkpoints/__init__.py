"""Checkpoints: a run that was interrupted, for whatever reason, goes on from where it was, to the last bit."""
