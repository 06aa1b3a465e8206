"""Conformance kits: what every transport, collective, codec and strategy must do, as tests to inherit.

    class TestElasticAveraging(StrategyConformance):
        def make(self):
            return ElasticAveraging(period=4)

They need pytest and hypothesis: `pip install minga[testing]`.
"""

from minga.testing.codecs import CodecConformance, FeedbackCodecConformance, UnbiasedCodecConformance
from minga.testing.collectives import CollectiveConformance
from minga.testing.strategies import (
    DeterministicStrategyConformance,
    ExactStrategyConformance,
    StrategyConformance,
)
from minga.testing.transports import TransportConformance
from minga.testing.worlds import generation_of, run_gloo_threads, run_tcp_threads, train_in_threads

__all__ = [
    "CodecConformance",
    "CollectiveConformance",
    "DeterministicStrategyConformance",
    "ExactStrategyConformance",
    "FeedbackCodecConformance",
    "StrategyConformance",
    "TransportConformance",
    "UnbiasedCodecConformance",
    "generation_of",
    "run_gloo_threads",
    "run_tcp_threads",
    "train_in_threads",
]
