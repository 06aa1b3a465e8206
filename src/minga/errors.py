"""Every error that Minga raises on purpose.

    MingaError
    ├── UsageError (ValueError)      what was given can't work; the message says what can
    │   ├── ConfigError              a field, a key, a strategy's name
    │   ├── WorkloadError            the model, the file it comes from, the loss
    │   ├── DataError                a data set that is missing or damaged
    │   └── PortBusy                 somebody else listens on the port that was asked for
    └── RunError (RuntimeError)      the run was fine on paper and failed on the way
        ├── DownloadFailed           a connection broke off too often; what has come is kept
        ├── DivergedError            too many steps in a row with NaN or infinite values
        ├── CheckpointError          no usable checkpoint to resume from
        ├── RunStopped               somebody asked the run to stop; it can go on later
        ├── StrategyError            ranks wait for each other, or send what others don't expect
        ├── PeerLost                 another rank went away
        │   ├── PeerDiverged         another rank's values were non-finite for too many steps in a row
        │   ├── PeerTimeout          another rank did not answer before the deadline
        │   │   └── Deadlock             in a simulation, nobody can go on
        │   ├── PeerWrong            another rank sent something malformed
        │   │   └── WrongLength          a message that is longer or shorter than it should be
        │   └── LeftBehind           the others do without this process
        ├── Refused                  the coordinator does not let this process in, with its reason
        ├── RankFailed               the rank that failed first, as the launcher reports it
        ├── LabError                 no lab can be made here, or one is gone
        ├── ProtocolError            what came from elsewhere is not what it should be
        └── UnsupportedError         this transport or device can't do that

The command line prints a `MingaError` as one message without a traceback: usage errors end with exit code 2,
run errors with 1, a run that was asked to stop with 143.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

__all__ = [
    "CheckpointError",
    "ConfigError",
    "DataError",
    "Deadlock",
    "DivergedError",
    "DownloadFailed",
    "LabError",
    "LeftBehind",
    "MingaError",
    "PeerDiverged",
    "PeerLost",
    "PeerTimeout",
    "PeerWrong",
    "PortBusy",
    "ProtocolError",
    "RankFailed",
    "Refused",
    "RunError",
    "RunStopped",
    "StrategyError",
    "UnsupportedError",
    "UsageError",
    "WorkloadError",
    "WrongLength",
    "unknown",
]


class MingaError(Exception):
    """Base of all errors that Minga raises on purpose."""


class UsageError(MingaError, ValueError):
    """What was given can't work."""


class ConfigError(UsageError):
    """A field, a key or a name in a configuration can't work."""


class WorkloadError(UsageError):
    """The workload can't be loaded or can't be trained."""


class DataError(UsageError):
    """A data set is missing or damaged."""


class RunError(MingaError, RuntimeError):
    """The run failed on the way."""


class DownloadFailed(RunError):
    """A connection broke off too often; what has come so far is kept, and the same command goes on from there."""


class DivergedError(RunError):
    """Too many steps in a row had a NaN or infinite loss or gradient."""


class CheckpointError(RunError):
    """No usable checkpoint to resume from."""


class RunStopped(RunError):
    """Somebody asked the run to stop; what it has learnt is in a checkpoint."""


class StrategyError(RunError):
    """Ranks wait for each other, or send what others don't expect: they don't make the same exchanges in a step."""


class PeerLost(RunError):
    """Another rank went away; `rank`: which one, where that is known."""

    def __init__(self, message: str, *, rank: int | None = None) -> None:
        super().__init__(message)
        self.rank = rank
        self.waiting = ""
        """What this rank waited for, where the transport is one that knows: "to receive 10 float32 from rank 1"."""


class PeerDiverged(PeerLost):
    """Too many steps in a row were left out because of another rank's non-finite values; that rank has the details."""


class PeerTimeout(PeerLost):
    """Another rank did not answer before the deadline."""


class Deadlock(PeerTimeout):
    """In a simulation, everybody waits for somebody else; the message says who for whom."""


class PeerWrong(PeerLost):
    """Another rank sent something malformed: nothing of it is used, and those who agree on that go on without it."""


class WrongLength(PeerWrong):
    """What another rank sent is longer or shorter than it should be, as where ranks don't do the same in a step."""


class ProtocolError(RunError):
    """What came from another process, or from a file, is not what it should be."""


class Refused(RunError):
    """The coordinator does not let this process take part (any more); the message is its reason."""


class LeftBehind(PeerLost):
    """The others go on without this process, or have come to the end, and it can't come back to them."""


class RankFailed(RunError):
    """One rank failed; the message is that rank's own, `traceback` where it is a program's error."""

    def __init__(self, message: str, *, rank: int, traceback: str = "") -> None:
        super().__init__(message)
        self.rank = rank
        self.traceback = traceback
        if traceback:
            # Python and notebooks show it below the error: the line that failed is in there, not in the launcher's own.
            self.add_note(f"on rank {rank}:\n{traceback.rstrip()}")


class LabError(RunError):
    """No lab can be made here, or one is gone."""


class PortBusy(UsageError):
    """Somebody else listens on the port that was asked for."""


class UnsupportedError(RunError):
    """This transport or device can't do that."""


def unknown(kind: str, given: str, known: Iterable[str], remedy: str = "") -> ConfigError:
    """The error for a name that nobody knows: `unknown strategy 'rign'; known: ... Did you mean 'ring'?`"""
    choices = sorted(known)
    message = f"unknown {kind} {given!r}; known: {', '.join(choices) or 'none'}."
    close = difflib.get_close_matches(given, choices, n=1, cutoff=0.5)
    if close:
        message += f" Did you mean {close[0]!r}?"
    return ConfigError(f"{message} {remedy}".rstrip())
