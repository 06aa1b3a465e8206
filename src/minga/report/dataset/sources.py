"""From paths to runs: run directories, or a study with its results; errors that say what a path is instead.

found = find_runs([Path("studies/bandwidth")])
found.runs, found.failures, found.notes
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from minga.errors import UsageError
from minga.measure.event_reader import malformed_note
from minga.report.dataset.reading import Run, is_run, read_run

__all__ = ["Found", "find_runs", "is_study"]


@dataclass
class Found:
    """What a report is made of."""

    runs: list[Run] = field(default_factory=list)
    """The finished ones."""
    failures: list[tuple[str, str]] = field(default_factory=list)
    """Name and reason of each run or cell that can't be counted."""
    notes: list[str] = field(default_factory=list)
    study: Path | None = None

    def add(self, run: Run, name: str) -> None:
        if (note := malformed_note(run.malformed)) is not None:
            self.notes.append(f"{run.directory.name}: {note}")
        if run.lost:
            who = f"rank {run.lost[0]}" if len(run.lost) == 1 else f"ranks {', '.join(map(str, run.lost))}"
            what = "it" if len(run.lost) == 1 else "them"
            self.notes.append(f"{run.directory.name}: {who} got lost on the way; the others went on without {what}.")
        if run.problem is not None:
            self.failures.append((name, run.problem))
        else:
            self.runs.append(run)


def is_study(directory: Path) -> bool:
    return (directory / "study.toml").is_file() or (directory / "results.jsonl").is_file()


def find_runs(sources: Sequence[Path]) -> Found:
    """Read what is at the paths; raise `UsageError` where there is nothing to report on."""
    if not sources:
        raise UsageError("give run directories (runs/*) or a study's directory")
    found = Found()
    studies = [path for path in sources if path.is_dir() and is_study(path)]
    if studies and len(sources) > 1:
        raise UsageError(f"{studies[0]} is a study: report on it alone, or give runs only ({studies[0]}/runs/*)")
    if studies:
        _read_study(studies[0], found)
    else:
        for path in {path.resolve(): path for path in sources}.values():
            if len(sources) > 1 and _is_something_else(path):
                continue
            found.add(read_run(_checked(path)), path.name)
    if not found.runs:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in found.failures[:3])
        more = f"; and {len(found.failures) - 3} more" if len(found.failures) > 3 else ""
        raise UsageError(f"there is no finished run to report on ({reasons or 'no run at all'}{more})")
    return found


def _is_something_else(path: Path) -> bool:
    """`runs/*` also finds reports that were written beside the runs, and profiles."""
    return path.is_dir() and not is_run(path) and (path.name == "profiles" or (path / "report.html").is_file())


def _checked(path: Path) -> Path:
    if not path.exists():
        raise UsageError(f"there is no {path}; give run directories (runs/*) or a study's directory")
    if not path.is_dir():
        raise UsageError(f"{path} is a file; give the directory of a run (it has experiment.toml and events/)")
    if not is_run(path):
        inside = sorted(each.name for each in path.iterdir() if each.is_dir() and is_run(each))
        if inside:
            raise UsageError(f"{path} is no run, but has {len(inside)} in it: minga report {path}/*")
        what = "is empty" if not any(path.iterdir()) else "is no run (it has no experiment.toml)"
        raise UsageError(f"{path} {what}; give run directories (runs/*) or a study's directory")
    return path


def _read_study(study: Path, found: Found) -> None:
    found.study = study
    results: dict[tuple[str, int], dict[str, Any]] = {}
    path = study / "results.jsonl"
    if path.is_file():
        for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), start=1):
            try:
                result = json.loads(line)
                # A cell that was tried again has several lines; the last one counts.
                results[str(result["cell"]), int(result["repetition"])] = result
            except (ValueError, KeyError, TypeError):
                found.notes.append(f"results.jsonl: line {number} is damaged and was passed over.")
    planned = _planned(study)
    if planned is not None:  # results of cells that were taken out of the study stay in its file
        results = {key: result for key, result in results.items() if key in planned}
    if not results:
        raise UsageError(f"the study {study} has no results yet; minga bench runs it")
    for result in results.values():
        name = f"{result.get('label') or result['cell']}, repetition {result['repetition'] + 1}"
        directory = study / str(result.get("run") or "")
        if result.get("state") != "done":
            found.failures.append((name, str(result.get("error") or "it failed")))
        elif not result.get("run") or not is_run(directory):
            found.failures.append((name, f"its run {result.get('run')} is not there any more"))
        else:
            run = read_run(directory)
            run.cell, run.environment = str(result["cell"]), result.get("environment")
            found.add(run, name)


def _planned(study: Path) -> set[tuple[str, int]] | None:
    """Cell and repetition of the runs that are the study's now; None where that is unknown."""
    try:
        runs = json.loads((study / "plan.json").read_text(encoding="utf-8"))["runs"]
        return {(str(run["cell"]), int(run["repetition"])) for run in runs}
    except (OSError, ValueError, KeyError, TypeError):
        return None
