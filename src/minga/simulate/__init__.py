"""Training in virtual time: the same strategies and the same loop, on a network and on devices that are data."""
