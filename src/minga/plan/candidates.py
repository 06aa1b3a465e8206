"""What might be best: strategies, codecs, periods, servers and numbers of nodes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from minga.base.spec import describe
from minga.strategies import Strategy

__all__ = ["Candidate", "candidates_among_peers", "candidates_for"]

_PERIODS = (4, 8, 16, 32, 64)
# More of them beside workers make messages small and many.
_MOST_SERVERS = 8
# As many epochs more than one node needs, at most, for what nodes take up without asking people.
_LITTLE = 1.02


@dataclass(frozen=True)
class Candidate:
    """A way to train."""

    strategy: Strategy
    nodes: int
    batch: int
    """Samples of each node in a step."""
    order: tuple[int, ...] = ()
    """Which node is which rank; empty: as they are numbered."""

    @property
    def name(self) -> str:
        return describe(self.strategy)

    @property
    def exact(self) -> bool:
        """Whether it learns what one process with the whole batch would."""
        return self.strategy.traits.exact

    @property
    def epochs_factor(self) -> float:
        """How many epochs it needs for what one process learns in one: an assumption, where no trial run was made.

        What is late counts less, with the square root of how late it is; what a codec leaves out comes later.
        """
        return self.strategy.traits.epochs_factor(self.nodes) * self.strategy.codec.epochs_factor


def candidates_for(nodes: int, batch: int, *, total_batch: int | None = None) -> Iterator[Candidate]:
    """All that are worth pricing on up to this many nodes, the simplest first.

    `total_batch`: samples of all nodes together, which they divide; None: each node takes `batch`.
    """

    def made(spec: str, count: int) -> Iterator[Candidate]:
        share = batch if total_batch is None else -(-total_batch // count)
        if total_batch is None or count <= total_batch:
            yield Candidate(Strategy.from_value(spec), count, share)

    yield from made("single", 1)
    for count in _counts(nodes):
        for spec in _specs(count):
            yield from made(spec, count)
    # Servers on machines of their own take those from the workers.
    for servers in sorted({1, nodes // 3} - {0}) if nodes > 2 else ():
        for spec in _server_specs(servers, "own"):
            yield from made(spec, nodes - servers)


def candidates_among_peers(nodes: int) -> list[Candidate]:
    """Those that all nodes of a running job can take up by themselves: no servers, and little to lose.

    All-reduce, also in forms that were found to learn as much, and `adaptive`, which has an accuracy budget. Long local
    periods and sparse gradients are for people who have tried them.
    """
    found = [Candidate(Strategy.from_value(spec), nodes, 1) for spec in _specs(nodes)]
    return [
        each
        for each in found
        if (each.strategy.traits.adapts or each.strategy.traits.averages_gradients)
        and not each.strategy.traits.servers
        and each.strategy.codec.epochs_factor <= _LITTLE
    ]


def _counts(nodes: int) -> list[int]:
    """2, 4, 8, ..., and all of them."""
    powers = [1 << power for power in range(1, nodes.bit_length()) if 1 << power < nodes]
    return [*powers, nodes] if nodes > 1 else []


def _server_specs(servers: int, placement: str) -> Iterator[str]:
    for mode in ("sync", "ssp", "async"):
        for codec in ("", ",codec=half", ",codec=int8"):
            yield f"ps:mode={mode},servers={servers},placement={placement}{codec}"


def _specs(nodes: int) -> Iterator[str]:
    codecs = ("", "half", "int8", "(power_sgd:rank=2)", "(power_sgd:rank=4)", "(top_k:ratio=0.01)")
    yield "adaptive"
    collectives = ["ring", "halving_doubling", "tree"] + (["mesh"] if nodes <= 16 else [])
    if nodes == 2:
        collectives.append("direct")
    for collective in collectives:
        for codec in codecs if collective == "ring" else codecs[:2]:
            yield f"{collective}:codec={codec}" if codec else collective
    for servers in sorted({1, min(nodes, _MOST_SERVERS)}):
        yield from _server_specs(servers, "beside")
    for period in _PERIODS:
        for codec in ("", "int8", "sign"):
            ending = f",codec={codec}" if codec else ""
            yield f"local_sgd:period={period}{ending}"
            yield f"local_sgd:period={period},overlap={period}{ending}"
    for period in (16, 64):
        yield f"diloco:period={period},codec=int8"
    if nodes > 2:
        yield "gossip:algorithm=dpsgd"
        yield "gossip:algorithm=dpsgd,overlap=true,codec=int8"
