"""Sentences about pictures: the network of the Quito thesis, its words, its search for sentences (docs/captions.md)."""
