"""Who works, who waits: a table with a row for each rank, while a run goes on and when it is done."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from rich.table import Table

from minga.report.numbers import duration, size

__all__ = ["RankRow", "rank_table"]

# A simulated run may have a thousand ranks; its events and --json have all of them.
_MOST_ROWS = 40


class RankRow(Protocol):
    """What the table shows of a rank."""

    @property
    def rank(self) -> int: ...
    @property
    def host(self) -> str | None: ...
    @property
    def role(self) -> str: ...
    @property
    def steps(self) -> int: ...
    @property
    def samples(self) -> int: ...
    @property
    def loss(self) -> float | None: ...
    @property
    def work_seconds(self) -> float: ...
    @property
    def wait_seconds(self) -> float: ...
    @property
    def bytes_sent(self) -> int: ...


def rank_table(ranks: Iterable[RankRow]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    ranks = list(ranks)
    hosts = any(rank.host for rank in ranks)
    for name in ("rank", "host", "role") if hosts else ("rank", "role"):
        table.add_column(name)
    for name in ("steps", "loss", "own work", "waiting", "sent"):
        table.add_column(name, justify="right")
    for rank in ranks[:_MOST_ROWS]:
        table.add_row(
            str(rank.rank),
            *([rank.host or ""] if hosts else []),
            rank.role,
            f"{rank.steps:,}" if rank.samples else "",
            f"{rank.loss:.4f}" if rank.loss is not None else "",
            duration(rank.work_seconds),
            duration(rank.wait_seconds),
            size(rank.bytes_sent),
        )
    if len(ranks) > _MOST_ROWS:
        table.add_row("...", *([""] if hosts else []), f"{len(ranks) - _MOST_ROWS:,} more")
    return table
