"""Data sets brought to this machine: downloaded or copied, unpacked with care, checked."""
