"""Strategies of each kind over real sockets: all at once, with servers, in the background, whenever one likes to."""

from __future__ import annotations

import pytest

from minga.codecs import Half
from minga.strategies import AllReduce, Gossip, LocalSGD, ParameterServer, Strategy
from minga.testing import (
    DeterministicStrategyConformance,
    ExactStrategyConformance,
    StrategyConformance,
    run_tcp_threads,
)

pytestmark = pytest.mark.slow  # the transport's own kit has shown what a strategy may rely on


class TestRingOverTcp(ExactStrategyConformance):
    run_on = staticmethod(run_tcp_threads)

    def make(self) -> Strategy:
        return AllReduce(collective="ring", bucket_bytes=64)


class TestAsynchronousServersOverTcp(StrategyConformance):
    run_on = staticmethod(run_tcp_threads)

    def make(self) -> Strategy:
        return ParameterServer(mode="async", servers=2)


class TestOverlappedLocalStepsOverTcp(DeterministicStrategyConformance):
    run_on = staticmethod(run_tcp_threads)

    def make(self) -> Strategy:
        return LocalSGD(period=4, overlap=4)


class TestAsynchronousGossipOverTcp(StrategyConformance):
    run_on = staticmethod(run_tcp_threads)

    def make(self) -> Strategy:
        return Gossip(algorithm="asynchronous", codec=Half())
