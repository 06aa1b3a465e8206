"""Are two nodes ever slower than one? `adaptive` against one node, from 3 Mbit/s to 1 Gbit/s.

MINGA_DATA=DIR python benchmarks/never_slower.py              # about half an hour; a stopped one goes on
MINGA_DATA=DIR python benchmarks/never_slower.py --quick
"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path
from typing import Any

import contest
import harness
import time_figures
from contest import SINGLE, Cell, Kept
from rich.console import Console
from rich.progress import track

BANDWIDTHS = [3.0, 10.0, 35.0, 100.0, 300.0, 1000.0]
FIGURE = Path(__file__).parents[1] / "docs" / "results" / "never_slower.svg"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="fewer samples, two bandwidths, once; saved elsewhere")
    parser.add_argument("--workload", choices=list(contest.PROBLEMS), default="fashion-mnist")
    parser.add_argument("--bandwidths", nargs="+", type=float, metavar="MBIT", help=f"default: {BANDWIDTHS}")
    parser.add_argument("--repetitions", type=int, default=2)
    parser.add_argument("--contestant", action="append", metavar="STRATEGY", help="default: adaptive")
    parser.add_argument("--fresh", action="store_true", help="forget what an earlier, stopped benchmark has measured")
    parser.add_argument("--draw", action="store_true", help="only the figure, from the result file")
    options = parser.parse_args()
    folder = contest.SCRATCH if options.quick else harness.RESULTS
    if not options.draw:
        rows = measure(options)
        note = f"{options.workload}: two nodes against one that was measured beside them, a core each; training only"
        harness.show(rows, note)
        harness.write("never_slower", rows, note, folder=folder)
    rows = json.loads((folder / "never_slower.json").read_text())["rows"]
    time_figures.draw_never_slower(rows, contest.SCRATCH / "never_slower.svg" if options.quick else FIGURE)


def measure(options: argparse.Namespace) -> list[dict[str, Any]]:
    problem = (contest.QUICK_PROBLEMS if options.quick else contest.PROBLEMS)[options.workload]
    bandwidths = options.bandwidths or ([10.0, 1000.0] if options.quick else BANDWIDTHS)
    seeds = range(1 if options.quick else options.repetitions)
    contestants = options.contestant or ["adaptive"]
    kept = Kept(contest.SCRATCH / f"never_slower{'_quick' if options.quick else ''}.jsonl", fresh=options.fresh)

    def cell(contestant: str, bandwidth: float, seed: int) -> Cell:
        nodes = 1 if contestant == SINGLE else 2
        return Cell(problem=problem, contestant=contestant, nodes=nodes, bandwidth=bandwidth, seed=seed)

    sittings = [(bandwidth, seed) for seed in seeds for bandwidth in bandwidths]
    for turn, (bandwidth, seed) in enumerate(track(sittings, console=Console(stderr=True))):
        missing = [each for name in contestants if (each := cell(name, bandwidth, seed)) not in kept]
        if missing:
            one_node = contest.measure(cell(SINGLE, bandwidth, seed))
            for each in contest.rotated(missing, turn):
                kept.keep(each, contest.measure(each), one_node)
    rows = []
    for name in contestants:
        for bandwidth in bandwidths:
            pairs = [kept[cell(name, bandwidth, seed)] for seed in seeds]
            speed_ups = [one.seconds / mine.seconds for mine, one in pairs if one is not None]
            rows.append(
                {
                    "contestant": name,
                    "Mbit/s": bandwidth,
                    "seconds": statistics.median(mine.seconds for mine, _ in pairs),
                    "one node's seconds": statistics.median(one.seconds for _, one in pairs if one is not None),
                    "speed-up": statistics.median(speed_ups),
                    "lowest": min(speed_ups),
                    "highest": max(speed_ups),
                    "accuracy": statistics.median(mine.curve[-1][1] for mine, _ in pairs),
                    "one node's accuracy": statistics.median(one.curve[-1][1] for _, one in pairs if one is not None),
                    "MB sent": statistics.median(mine.bytes / 1e6 for mine, _ in pairs),
                    "repetitions": len(pairs),
                }
            )
    return rows


if __name__ == "__main__":
    main()
