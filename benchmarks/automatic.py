"""Does `auto` choose well? Against fixed choices at 10, 100 and 1000 Mbit/s, and on a link that falls in mid-run.

    MINGA_DATA=DIR python benchmarks/automatic.py              # about half an hour; a stopped one goes on
    MINGA_DATA=DIR python benchmarks/automatic.py --quick      # some minutes: does it all work?

Two nodes with a core each (Linux); the time is that of training, with all that `auto` does to find out.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import statistics
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import contest
import harness
from contest import Cell, Kept
from rich.console import Console
from rich.progress import track

from minga import run
from minga.lab import registry
from minga.lab.laboratory import adjust_link
from minga.measure.event_reader import event_files, read_events
from minga.measure.events import Started, Stepped
from minga.runs.network import LinkOverride

AUTO = "auto"
FIXED = ["adaptive", "ring", "ring:codec=half", "ring:codec=(power_sgd:rank=2)", "local_sgd:period=8"]
FOLLOWERS = [AUTO, "adaptive"]
BANDWIDTHS = [10.0, 100.0, 1000.0]
FALLS_AFTER = 10.0
"""Seconds of training; all that comes in the next so many seconds is left for following it."""
SETTLES_IN = 15.0
LONGER = 3


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="fewer samples, one bandwidth, once; saved elsewhere")
    parser.add_argument("--workload", choices=list(contest.PROBLEMS), default="fashion-mnist")
    parser.add_argument("--repetitions", type=int, default=2)
    parser.add_argument("--falling", action="store_true", help="only the link that falls; printed, not saved")
    parser.add_argument("--fresh", action="store_true", help="forget what an earlier, stopped benchmark has measured")
    options = parser.parse_args()
    folder = contest.SCRATCH if options.quick else harness.RESULTS
    note = f"{options.workload}: two nodes, a core each; seconds of training, medians"
    if options.falling:
        harness.show(followed(options), note)
        return
    rows = chosen(options) + ([] if options.quick else followed(options))
    harness.show(rows, note)
    harness.write("automatic", rows, note, folder=folder)


def chosen(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Fixed links: what each choice takes, and `auto`."""
    problem = (contest.QUICK_PROBLEMS if options.quick else contest.PROBLEMS)[options.workload]
    seeds = range(1 if options.quick else options.repetitions)
    kept = Kept(contest.SCRATCH / f"automatic{'_quick' if options.quick else ''}.jsonl", fresh=options.fresh)
    bandwidths = [100.0] if options.quick else BANDWIDTHS

    def cell(contestant: str, bandwidth: float, seed: int) -> Cell:
        return Cell(problem=problem, contestant=contestant, nodes=2, bandwidth=bandwidth, seed=seed)

    sittings = list(itertools.product(seeds, bandwidths))
    for turn, (seed, bandwidth) in enumerate(track(sittings, console=Console(stderr=True))):
        for name in contest.rotated([AUTO, *FIXED], turn):
            # What exchanges whole gradients takes many minutes where it can't be the best.
            hopeless = bandwidth <= 100 and name in ("ring", "ring:codec=half")
            if not hopeless and cell(name, bandwidth, seed) not in kept:
                kept.keep(cell(name, bandwidth, seed), contest.measure(cell(name, bandwidth, seed)), None)
    rows = []
    for bandwidth in bandwidths:
        found = {
            name: [kept[cell(name, bandwidth, seed)][0] for seed in seeds]
            for name in [AUTO, *FIXED]
            if cell(name, bandwidth, seeds[0]) in kept
        }
        seconds = {name: statistics.median(each.seconds for each in runs) for name, runs in found.items()}
        best = min(seconds[name] for name in found if name != AUTO)
        rows += [
            {
                "Mbit/s": bandwidth,
                "strategy": name,
                "seconds": seconds[name],
                "to the best fixed": seconds[name] / best,
                "accuracy": statistics.median(each.curve[-1][1] for each in runs),
                "repetitions": len(runs),
            }
            for name, runs in found.items()
        ]
    return rows


def followed(options: argparse.Namespace) -> list[dict[str, Any]]:
    """The link falls from 1000 to 10 Mbit/s in the middle: how long a step takes before, and once that is settled."""
    rows = []
    for name in FOLLOWERS:
        problem = contest.PROBLEMS[options.workload]
        problem = dataclasses.replace(problem, epochs=LONGER * problem.epochs)
        experiment = Cell(problem=problem, contestant=name, nodes=2, bandwidth=1000.0, seed=0).experiment
        with tempfile.TemporaryDirectory() as folder:
            fall = _Fall()
            summary = run(experiment(folder))
            events = list(read_events(event_files(Path(summary.run))[0]))
        fall.join()
        began = next(event.time for event in events if isinstance(event, Started))
        steps = [event.time - began for event in events if isinstance(event, Stepped)]
        fell = fall.moment - began
        before = [b - a for a, b in itertools.pairwise(steps) if FALLS_AFTER / 2 < b < fell]
        after = [b - a for a, b in itertools.pairwise(steps) if b > fell + SETTLES_IN]
        rows.append(
            {
                "Mbit/s": "1000, then 10",
                "strategy": name,
                "seconds": summary.seconds,
                "ms of a step before": 1000 * statistics.mean(before),
                "ms of a step after": 1000 * statistics.mean(after) if after else None,
            }
        )
    return rows


class _Fall(threading.Thread):
    """Makes the links of a run's lab slow, some seconds after it was made."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.moment = 0.0
        self._known = {record.name for record in registry.records()}
        self.start()

    def run(self) -> None:
        while not (found := [record for record in registry.records() if record.name not in self._known]):
            time.sleep(0.1)
        time.sleep(FALLS_AFTER + 4)  # until training has begun
        for host in found[0].hosts:
            adjust_link(found[0], host, LinkOverride(bandwidth="10mbit"))  # type: ignore[arg-type]
        self.moment = time.perf_counter()


if __name__ == "__main__":
    main()
