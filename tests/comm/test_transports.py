from __future__ import annotations

from collections.abc import Callable
from typing import Any

from minga.comm.threads import run_threads
from minga.comm.traced import TracedTransport
from minga.comm.transport import Transport
from minga.measure.traffic import Traffic
from minga.testing import TransportConformance, run_gloo_threads, run_tcp_threads


class TestThreads(TransportConformance):
    def run(self, size: int, function: Callable[[Transport], Any], *, timeout_seconds: float = 20.0) -> list[Any]:
        return run_threads(size, function, timeout_seconds=timeout_seconds)


class TestGloo(TransportConformance):
    def run(self, size: int, function: Callable[[Transport], Any], *, timeout_seconds: float = 20.0) -> list[Any]:
        return run_gloo_threads(size, function, timeout_seconds=timeout_seconds)


class TestTcp(TransportConformance):
    def run(self, size: int, function: Callable[[Transport], Any], *, timeout_seconds: float = 20.0) -> list[Any]:
        return run_tcp_threads(size, function, timeout_seconds=timeout_seconds)


class TestTraced(TransportConformance):
    def run(self, size: int, function: Callable[[Transport], Any], *, timeout_seconds: float = 20.0) -> list[Any]:
        def traced(comm: Transport) -> Any:
            return function(TracedTransport(comm, Traffic()))

        return run_threads(size, traced, timeout_seconds=timeout_seconds)
