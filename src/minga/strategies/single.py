"""One node, no exchange: the baseline of every comparison."""

from __future__ import annotations

from dataclasses import dataclass

from minga.base.config import FieldError
from minga.comm import Transport
from minga.model.replica import Replica
from minga.strategies.base import Strategy

__all__ = ["Single"]


@dataclass(frozen=True, kw_only=True)
class Single(Strategy):
    """One node trains alone: the baseline of every comparison."""

    def step(self, replica: Replica, comm: Transport) -> None:
        replica.update()

    def finish(self, replica: Replica, comm: Transport) -> None:
        pass

    def check_nodes(self, nodes: int) -> None:
        if nodes != 1:
            raise FieldError(
                ("strategy",),
                f"'single' is one node alone, not {nodes}; choose another, such as 'ring', or nodes=1",
            )
