"""A run as processes on this machine, on its loopback or on hosts of a lab."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from minga.errors import DataError, RankFailed, RunError, UsageError, WorkloadError
from minga.experiment import Experiment
from minga.launch.hosting import host_ranks, hosting
from minga.launch.processes import Job, Processes, processes
from minga.measure.events import event_files, read_events
from minga.run_directory import log_file

__all__ = ["launch_local", "see_through"]

_TICK_SECONDS = 0.1
# After a failure, the other ranks get this long to tell theirs: the cause may be among them.
_LAST_WORDS_SECONDS = 1.0


def launch_local(experiment: Experiment, run: Path, tick: Callable[[], None]) -> None:
    """Train; returns when all ranks are done, raises if one fails. `tick` is called a few times a second."""
    with hosting(experiment, run) as where:
        jobs = [
            Job(
                name=f"rank {ranks[0]}",
                function="minga.launch.rank:main",
                arguments={
                    "run": str(run),
                    "ranks": ranks,
                    "meeting": where.meeting,
                    "address": where.addresses[index],
                    "hosts": where.hosts,
                },
                log=str(log_file(run, ranks[0])),
                place=where.places[index],
            )
            for index, ranks in enumerate(host_ranks(experiment))
        ]
        with processes([*where.helpers, *jobs], run / "logs" / "fork-server.log") as started:
            see_through(started, run, tick)


def see_through(started: Processes, run: Path, tick: Callable[[], None]) -> None:
    """Wait until all processes have ended well; one that ends badly ends the run."""
    failed: dict[str, int] = {}
    deadline = float("inf")
    while started.running and time.monotonic() < deadline:
        for name, code in started.wait(_TICK_SECONDS):
            if code != 0:
                failed[name] = code
                deadline = min(deadline, time.monotonic() + _LAST_WORDS_SECONDS)
        tick()
    if failed:
        raise _cause(failed, run)


def _cause(failed: Mapping[str, int], run: Path) -> Exception:
    """The one error that the others follow from."""
    told = [event for path in event_files(run) for event in read_events(path) if event["event"] == "failed"]
    # A rank that ended without a word (killed, crashed) is a cause too, where all words are consequences.
    causes = [event for event in told if not event["consequence"]]
    if causes:
        return _from_event(min(causes, key=lambda event: float(event["time"])))
    silent = {name: code for name, code in failed.items() if name not in _names(told)}
    if silent:
        name, code = next(iter(silent.items()))
        return _from_code(name, code, run)
    return _from_event(min(told, key=lambda event: float(event["time"])))


def _rank(name: str) -> int:
    """-1 for a helper."""
    return int(name.removeprefix("rank ")) if name.startswith("rank ") else -1


def _names(told: list[dict[str, Any]]) -> set[str]:
    return {f"rank {event['rank']}" for event in told}


def _from_event(event: Mapping[str, Any]) -> Exception:
    usage: dict[str, type[UsageError]] = {"WorkloadError": WorkloadError, "DataError": DataError}
    if event["kind"] in usage:  # the same on every rank: which one said it first does not matter
        return usage[event["kind"]](event["message"])
    when = f" at step {event['step']}" if event["step"] else ""
    kind = f"{event['kind']}: " if event["traceback"] else ""
    text = f"rank {event['rank']} failed{when}: {kind}{event['message']}"
    return RankFailed(text, rank=event["rank"], traceback=event["traceback"])


def _from_code(name: str, code: int, run: Path) -> RunError:
    how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
    log = log_file(run, _rank(name)) if _rank(name) >= 0 else run / "logs" / f"{name}.log"
    last = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-5:] if log.is_file() else []
    words = "\n".join(["; its last words:", *last]) if last else " without a word"
    hint = " (out of memory?)" if code == -signal.SIGKILL else ""
    return RankFailed(f"{name} {how}{hint}{words}", rank=_rank(name))
