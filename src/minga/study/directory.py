"""The directory of a study: `study.toml`, `plan.json`, `results.jsonl`, `runs/`; one `minga bench` at a time.

with study_directory(Path("studies/quito"), study) as directory:
    ...
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import shutil
import time
from collections.abc import Collection, Iterator
from pathlib import Path

from minga.base.toml_files import read_toml
from minga.errors import ConfigError, UsageError
from minga.study.description import Study

__all__ = ["remove_runs_without_a_result", "remove_tree", "study_directory"]

# Held by the one at work. It is also the sign that a directory is a study's: only there things may be removed.
_LOCK = ".study-lock"
_REMOVE_SECONDS = 10.0


@contextlib.contextmanager
def study_directory(directory: Path, study: Study, *, fresh: bool = False) -> Iterator[Path]:
    """Have the directory for oneself, with the study's description in it; `fresh` moves an earlier one aside."""
    directory = directory.expanduser().resolve()
    if fresh and (directory / _LOCK).exists():
        with _lock(directory):
            directory.rename(_aside(directory))
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"can't make {directory} ({error.strerror}); choose another directory with --out") from None
    if not (directory / _LOCK).exists() and any(directory.iterdir()):
        raise ConfigError(f"{directory} is not empty and no study's directory; choose another with --out")
    with _lock(directory):
        _describe(directory, study)
        yield directory


@contextlib.contextmanager
def _lock(directory: Path) -> Iterator[None]:
    # The system lets go of it when the process ends, however that happens: nothing stale to clean up.
    descriptor = os.open(directory / _LOCK, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(descriptor, 32).decode(errors="replace").strip()
            raise UsageError(
                f"another minga bench{f' (process {holder})' if holder else ''} is at work in {directory}; "
                "wait for it, or choose another directory with --out"
            ) from None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(descriptor)


def _aside(directory: Path) -> Path:
    """A name for what is moved aside, which nothing has yet."""
    plain = directory.with_name(f"{directory.name}-before-{time.strftime('%Y%m%d-%H%M%S')}")
    names = (plain if attempt == 0 else plain.with_name(f"{plain.name}-{attempt}") for attempt in range(1000))
    return next(name for name in names if not name.exists())


def _describe(directory: Path, study: Study) -> None:
    file = directory / "study.toml"
    if file.exists():
        name = read_toml(file)[1].get("name")
        if name != study.name:
            raise ConfigError(
                f"{directory} has the study {name!r}, not {study.name!r}; choose another with --out, or begin again "
                "with --fresh (the old one is moved aside)"
            )
    _write(file, study.to_toml())
    # Which results are the study's: there may be more, of cells that are no longer in it.
    plan = [{"cell": job.cell.identity, "label": job.cell.label, "repetition": job.repetition} for job in study.jobs]
    _write(directory / "plan.json", json.dumps({"runs": plan}, indent=1))


def _write(file: Path, text: str) -> None:
    """All of it or nothing."""
    new = file.with_name(f"{file.name}.new")
    new.write_text(text, encoding="utf-8")
    new.replace(file)


def remove_runs_without_a_result(runs: Path, known: Collection[str]) -> int:
    """Remove runs that were cut short; only what is named like a run's directory. How many there were."""
    removed = 0
    for run in sorted(runs.glob("*")) if runs.is_dir() else []:
        if run.is_dir() and run.name not in known and re.match(r"\d{8}-\d{6}-", run.name):
            remove_tree(run)
            removed += 1
    return removed


def remove_tree(directory: Path) -> None:
    """Remove a directory, in which processes that are about to end may still be writing."""
    deadline = time.monotonic() + _REMOVE_SECONDS
    while directory.exists():
        shutil.rmtree(directory, ignore_errors=time.monotonic() < deadline)
        if directory.exists():
            time.sleep(0.1)
