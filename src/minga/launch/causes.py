"""Why a run has ended, in one error: by what the ranks have written down, and by how their processes have ended."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from pathlib import Path

from minga.errors import DataError, MingaError, RankFailed, Refused, RunError, RunStopped, StrategyError, WorkloadError
from minga.measure.event_reader import events_of
from minga.measure.events import Failed
from minga.runs.directory import log_file
from minga.training.checkpoints.files import list_checkpoints

__all__ = ["cause", "rank_of", "stopped", "too_few"]

# The same on every rank, so that it does not matter which one said it first; or of the only one that is here.
_SAME_EVERYWHERE: dict[str, type[MingaError]] = {
    kind.__name__: kind for kind in (WorkloadError, DataError, Refused, StrategyError)
}


def cause(failed: Mapping[str, int], run: Path) -> Exception:
    """The one error that the others follow from. `failed`: exit codes of processes, by their names."""
    events = events_of(run, Failed)
    # A rank that ended without an event (killed, crashed) is a cause too, where all events are consequences.
    causes = [event for event in events if not event.consequence]
    if not causes:
        recorded = {f"rank {event.rank}" for event in events}
        for name, code in failed.items():
            if name not in recorded:
                return _from_code(name, code, run)
    return _from_event(min(causes or events, key=lambda event: event.time))


def stopped(run: Path) -> RunStopped:
    """It was asked to."""
    how = _how_to_go_on(run)
    return RunStopped(
        f"the run was asked to stop{how}" if how else "the run was asked to stop before it had a checkpoint"
    )


def too_few(left: int, run: Path) -> RunError:
    """Some are left, who could only wait for others."""
    return RunError(
        f"{left} of the nodes {'is' if left == 1 else 'are'} left, fewer than --min-nodes, and nobody can join "
        f"a run without --listen{_how_to_go_on(run)}"
    )


def rank_of(name: str) -> int:
    """The rank that a process is named after; -1 for a helper."""
    return int(name.removeprefix("rank ")) if name.startswith("rank ") else -1


def _how_to_go_on(run: Path) -> str:
    """A sentence, if there is a checkpoint."""
    whole = [checkpoint for checkpoint in list_checkpoints(run) if checkpoint.complete]
    return f"; it goes on from {whole[-1].name} with: minga train --resume {run}" if whole else ""


def _from_event(event: Failed) -> Exception:
    if event.kind in _SAME_EVERYWHERE:
        return _SAME_EVERYWHERE[event.kind](event.message)
    when = f" at step {event.step}" if event.step else ""
    kind = f"{event.kind}: " if event.traceback else ""
    text = f"rank {event.rank} failed{when}: {kind}{event.message}"
    return RankFailed(text, rank=event.rank, traceback=event.traceback)


def _from_code(name: str, code: int, run: Path) -> RunError:
    how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
    log = log_file(run, rank_of(name)) if rank_of(name) >= 0 else run / "logs" / f"{name}.log"
    last = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-5:] if log.is_file() else []
    lines = "\n".join(["; the end of its log:", *last]) if last else "; its log is empty"
    hint = " (out of memory?)" if code == -signal.SIGKILL else ""
    return RankFailed(f"{name} {how}{hint}{lines}", rank=rank_of(name))
