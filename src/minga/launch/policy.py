"""What is done when a process of a run ends: a table, and no effects (those are the supervisor's).

    action(Who.WORKER, how_of(-9), Phase.RUNNING)    # Action.GO_ON: the others do without it

Workers that are killed are not started again: the others go on without them. Before all that were expected have been
there together they can't, and nobody has anything to lose, so whoever is killed is started again. Servers have a part
that nobody else has, and come back with what is on their disk. Nobody needs the coordinator to train.
"""

from __future__ import annotations

import signal
from collections.abc import Mapping
from enum import Enum, auto

from minga.membership.coordinator import ABANDONED

__all__ = ["LEFT_BEHIND", "POLICIES", "STOPPED", "Action", "How", "Phase", "Who", "action", "how_of"]

STOPPED = 128 + signal.SIGTERM
"""The exit code of a rank that was asked to stop, and has."""
LEFT_BEHIND = ABANDONED
"""The exit code of a rank that the others go on without, and of a coordinator that everybody has left."""


class Who(Enum):
    """What a process is to the run."""

    RANK = auto()
    """Of a group that stays as it is: a script, ranks over gloo, the only one that is here."""
    WORKER = auto()
    SERVER = auto()
    """Also one beside a worker."""
    SUBSTITUTE = auto()
    """A server that was started again."""
    COORDINATOR = auto()
    OPEN_COORDINATOR = auto()
    """The coordinator of a run that listens for other machines: their nodes may go on after those here."""
    HELPER = auto()
    """Others need it as long as they run, such as the store where they meet."""


class How(Enum):
    """How it has ended."""

    DONE = auto()
    STOPPED = auto()
    """As it was asked to."""
    KILLED = auto()
    """By a signal."""
    LEFT_BEHIND = auto()
    """The others go on without it."""
    FAILED = auto()


class Phase(Enum):
    """Where the run is."""

    FORMING = auto()
    """Not all that were expected have been there together."""
    RUNNING = auto()
    STOPPING = auto()
    """It was asked to stop."""
    DONE = auto()
    """Somebody has come to the end."""


class Action(Enum):
    """What the launcher does."""

    FINISH = auto()
    """The run has come to its end."""
    STOP = auto()
    """The run stops."""
    GO_ON = auto()
    """The others do without it, if enough are left."""
    RESTART = auto()
    """Start it again; if that was done too often, `FAIL`."""
    RESTART_OR_GO_ON = auto()
    """Start it again; if that was done too often, `GO_ON`."""
    FAIL = auto()
    """The run ends, with this as its cause unless another rank has a better one."""


def how_of(code: int) -> How:
    """By the exit code, which is minus a signal's number where one has ended the process."""
    known = {0: How.DONE, STOPPED: How.STOPPED, LEFT_BEHIND: How.LEFT_BEHIND}
    return How.KILLED if code < 0 else known.get(code, How.FAILED)


def _table() -> Mapping[tuple[Who, How], tuple[Action, ...]]:
    finish, stop, go_on, fail = Action.FINISH, Action.STOP, Action.GO_ON, Action.FAIL
    restart, try_it = Action.RESTART, Action.RESTART_OR_GO_ON
    rank, worker, server, substitute = Who.RANK, Who.WORKER, Who.SERVER, Who.SUBSTITUTE
    coordinator, host, helper = Who.COORDINATOR, Who.OPEN_COORDINATOR, Who.HELPER
    done, stopped, killed, left, failed = How
    # fmt: off
    rows = [
        # who                                 how                forming  running  stopping done
        ([rank, worker, server, substitute], [done],            (finish,  finish,  finish,  finish)),
        ([rank, worker, server, substitute], [stopped],         (stop,    stop,    stop,    stop)),
        ([rank, worker, server],             [failed],          (fail,    fail,    fail,    fail)),
        # When the others are done, nobody needs it any more, and it may find nobody.
        ([substitute],                       [failed],          (fail,    fail,    fail,    go_on)),
        ([rank],                             [killed, left],    (fail,    fail,    fail,    fail)),
        ([worker],                           [killed, left],    (restart, go_on,   go_on,   go_on)),
        ([server, substitute],               [killed, left],    (restart, restart, go_on,   go_on)),
        # One that fails at once can't even begin, as where its port is taken.
        ([coordinator],                      [failed],          (fail,    try_it,  try_it,  try_it)),
        ([coordinator],                      [killed, stopped], (restart, try_it,  try_it,  try_it)),
        ([coordinator],                      [done, left],      (go_on,   go_on,   go_on,   go_on)),
        ([host],                             [failed],          (fail,    restart, restart, restart)),
        ([host],                             [killed, stopped], (restart, restart, restart, restart)),
        ([host],                             [done],            (finish,  finish,  finish,  finish)),
        ([host],                             [left],            (go_on,   go_on,   go_on,   go_on)),
        ([helper],                           list(How),         (fail,    fail,    go_on,   go_on)),
    ]
    # fmt: on
    return {(who, how): actions for whos, hows, actions in rows for who in whos for how in hows}


POLICIES = _table()


def action(who: Who, how: How, phase: Phase) -> Action:
    """What is done when a process ends."""
    return POLICIES[who, how][list(Phase).index(phase)]
