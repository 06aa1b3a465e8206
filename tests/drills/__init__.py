"""Faults on purpose: real runs whose processes are killed, stopped and cut off, and what became of them."""
