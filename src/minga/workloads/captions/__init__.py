"""Sentences about pictures: the network of the Quito thesis, its words, its search for sentences (docs/captions.md)."""

from minga.workloads.captions.workload import flickr8k_captions

__all__ = ["flickr8k_captions"]
