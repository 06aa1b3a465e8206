"""What the launcher tells the processes of a run to do. Orders travel as JSON and are checked where they arrive.

    order = RankOrder(run=run, ranks=(0,), address="127.0.0.1", meeting=Meeting(...))
    job = Job(name="rank 0", function="minga.launch.rank:main", order=order, log="rank-0.log")

That of a coordinator is with it, in `membership/coordinator.py`.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self

from minga.base.config import Config, FieldError

__all__ = ["Meeting", "MemberOrder", "RankOrder", "ScriptOrder"]


@dataclass(frozen=True, kw_only=True)
class Meeting(Config):
    """For a group of ranks that stays as it is: the store where all meet."""

    kind = "meeting"

    address: str
    port: int
    hosts: tuple[str, ...]
    """Of all ranks: a name of the host or site."""


@dataclass(frozen=True, kw_only=True)
class MemberOrder(Config):
    """For a group whose members come and go: how to become one of them."""

    kind = "roster entry"

    run: str
    """The run's name, so that another's coordinator is refused."""
    token: str = dataclasses.field(repr=False)
    start: Literal["first", "again", "joined"] = "first"
    """Started with the run; once more, in the place of a process that died; or to join a run of another machine."""
    coordinator: tuple[str, int] | None = None
    """Where it listens; None: the run's own, which writes that into its state file."""
    id: str | None = None
    """Of the node (default: by its rank)."""
    hosts: tuple[str, ...]
    """Of each of the order's ranks."""
    listening: bool = False
    """Whether the others are on other machines, where people start them: however long that takes."""
    interface: str | None = None
    """By which to go to the coordinator, where people have chosen one."""
    tls: str | None = None
    """The directory of this node's certificate."""


@dataclass(frozen=True, kw_only=True)
class RankOrder(Config):
    """To a process that trains or serves as one rank, or as a worker and the server that lives beside it."""

    kind = "rank's order"

    run: Path
    """The run's directory, with the experiment."""
    ranks: tuple[int, ...]
    address: str
    """Of this machine or host: where others connect to."""
    meeting: Meeting | None = None
    roster: MemberOrder | None = None
    resume: str | None = None
    """The checkpoint to go on from."""
    session: int = 0
    """How often the run was gone on with before."""

    def check(self) -> None:
        if not self.ranks:
            raise FieldError(("ranks",), "a process needs at least one rank")
        if (self.meeting is None) == (self.roster is None):
            raise FieldError(("meeting",), "ranks find each other by a meeting or by a roster; give one of the two")
        if self.roster is not None and len(self.roster.hosts) != len(self.ranks):
            raise FieldError(
                ("roster", "hosts"), f"{len(self.roster.hosts)} hosts for {len(self.ranks)} ranks; give one for each"
            )

    @property
    def joins(self) -> bool:
        """Whether it comes to a run of another machine."""
        return self.roster is not None and self.roster.start == "joined"

    def again(self) -> Self:
        """For who is started in the place of a process that died."""
        if self.roster is None:
            return self
        return dataclasses.replace(self, roster=dataclasses.replace(self.roster, start="again"))


@dataclass(frozen=True, kw_only=True)
class ScriptOrder(Config):
    """To a process that runs a user's script as one rank."""

    kind = "script's order"

    run: Path
    rank: int
    script: Path
    arguments: tuple[str, ...] = ()
    threads: int = 1
