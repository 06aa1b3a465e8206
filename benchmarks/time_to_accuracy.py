"""Two nodes against one, and Minga against torch's DDP: seconds, accuracy and bytes on networks of 10 Mbit/s and more.

    MINGA_DATA=DIR python benchmarks/time_to_accuracy.py                  # some hours; a stopped one goes on
    MINGA_DATA=DIR python benchmarks/time_to_accuracy.py --quick          # some minutes: does it all work?
    MINGA_DATA=DIR python benchmarks/time_to_accuracy.py --contestant native --contestant ring:codec=half --seeds 0
    MINGA_DATA=DIR python benchmarks/time_to_accuracy.py --workloads fashion-mnist --without-ddp   # 20 min
    MINGA_DATA=DIR python benchmarks/time_to_accuracy.py --four-nodes     # bytes of four nodes at 10 Mbit/s
    python benchmarks/time_to_accuracy.py --draw                          # only the figures, from the result file

Rows of workloads and contestants that are not asked for stay in the result file as they are. Every single run is kept
in benchmarks/results/time_to_accuracy_runs.jsonl, so that seeds and repetitions can be added later.
Each has the revision of the code that it was made with, but is used again whatever that is: after a change of a
strategy, begin anew with --fresh.
Data sets: Fashion-MNIST and tiny Shakespeare, in DIR/fashion-mnist and DIR/text/tinyshakespeare.txt. Linux, two cores.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import contest
import harness
import time_figures
from contest import DDP, NOTHING, POWERSGD, SINGLE, Cell, Kept, Outcome, Problem
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

NODES = 2
BANDWIDTHS = [10.0, 100.0, 1000.0]
SEEDS = [0, 1, 2]
REPETITIONS = 3
"""A minute of this machine may be a tenth slower than the next, which is more than what is looked for."""
CONTESTANTS = ["adaptive"]
FULL_BANDWIDTH = 1000.0
"""Where DDP is run to its end; what it learns is the same at the others."""
TARGET = 0.99
"""Of the accuracy that one node has at its end."""
FIGURES = Path(__file__).parents[1] / "docs" / "results"


def main() -> None:
    options = parse()
    folder = contest.SCRATCH if options.quick else harness.RESULTS
    figures = contest.SCRATCH if options.quick else FIGURES
    name = "four_nodes" if options.four_nodes else "time_to_accuracy"
    if not options.draw:
        contest.SCRATCH.mkdir(parents=True, exist_ok=True)
        kept = Kept(folder / f"{name}_runs.jsonl", fresh=options.fresh)
        problems = [(contest.QUICK_PROBLEMS if options.quick else contest.PROBLEMS)[each] for each in options.workloads]
        if options.four_nodes:
            rows, note = four_nodes(options, problems, kept), FOUR_NODES_NOTE
        else:
            rows, note = two_nodes(options, problems, kept, folder), note_of(options)
        harness.write(name, rows, note, script="time_to_accuracy", folder=folder)
        harness.show([{key: value for key, value in row.items() if key not in HIDDEN} for row in rows], note)
    if not options.four_nodes:
        rows = json.loads((folder / "time_to_accuracy.json").read_text())["rows"]
        time_figures.draw_speed_ups(rows, figures / "time_to_accuracy.svg")
        time_figures.draw_curves(rows, min(row["Mbit/s"] for row in rows), figures / "accuracy_against_time.svg")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="fewer samples, one seed, one bandwidth; saved elsewhere")
    parser.add_argument("--workloads", nargs="+", choices=list(contest.PROBLEMS), default=list(contest.PROBLEMS))
    parser.add_argument("--bandwidths", nargs="+", type=float, metavar="MBIT", help="default: 10 100 1000")
    parser.add_argument("--seeds", nargs="+", type=int, help="default: 0 1 2")
    parser.add_argument("--repetitions", type=int, help="of Minga's contestants, with each seed; default: 3")
    parser.add_argument("--contestant", action="append", metavar="STRATEGY", help="of Minga; default: adaptive")
    parser.add_argument("--seeds-of-ddp", nargs="+", type=int, help="for DDP and its hook; default: the same")
    parser.add_argument("--together", type=int, default=2, help="runs of Minga's between two of one node; default: 2")
    parser.add_argument("--without-ddp", action="store_true", help="leave out DDP and its hook")
    parser.add_argument("--four-nodes", action="store_true", help="only: bytes of four nodes on the slowest network")
    parser.add_argument("--fresh", action="store_true", help="forget what an earlier, stopped benchmark has measured")
    parser.add_argument("--measured", action="store_true", help="measure nothing more: rows of what there is")
    parser.add_argument("--draw", action="store_true", help="only the figures, from the result file")
    options = parser.parse_args()
    options.bandwidths = options.bandwidths or ([10.0] if options.quick else BANDWIDTHS)
    options.seeds = options.seeds or ([0] if options.quick else SEEDS)
    options.repetitions = options.repetitions or (1 if options.quick else REPETITIONS)
    options.seeds_of_ddp = options.seeds if options.seeds_of_ddp is None else options.seeds_of_ddp
    ours = options.contestant or CONTESTANTS
    options.contestants = ours if options.without_ddp else [DDP, POWERSGD, *ours]
    return options


# --- two nodes ---------------------------------------------------------------------------------------------------


def two_nodes(
    options: argparse.Namespace, problems: Sequence[Problem], kept: Kept, folder: Path
) -> list[dict[str, Any]]:
    """Measure what is not measured yet, and write the rows down after every sitting."""
    before = rows_in(folder / "time_to_accuracy.json")
    planned = [] if options.measured else plan(options, problems)
    sittings = [left for left in ([cell for cell in s if cell not in kept] for s in planned) if left]
    rows = rows_of(options, problems, kept)
    last: tuple[Cell, Outcome] | None = None
    with _progress() as progress:
        task = progress.add_task("", total=sum(len(sitting) for sitting in sittings))
        for turn, sitting in enumerate(sittings):
            last = sit(list(contest.rotated(sitting, turn)), last, kept, progress, task)
            rows = rows_of(options, problems, kept)
            harness.write("time_to_accuracy", joined(rows, before), note_of(options), folder=folder)
    return joined(rows, before)


def rows_in(path: Path) -> list[dict[str, Any]]:
    return json.loads(path.read_text())["rows"] if path.is_file() else []


def joined(rows: Sequence[dict[str, Any]], before: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """What was measured now, and of what was measured before all the rest; in the order of workloads and networks."""

    def place(row: dict[str, Any]) -> tuple[Any, ...]:
        return row["workload"], row["Mbit/s"], row["contestant"]

    known = {place(row): row for row in [*before, *rows]}
    workloads = [*contest.PROBLEMS, *(row["workload"] for row in known.values())]
    return sorted(known.values(), key=lambda row: (workloads.index(row["workload"]), row["Mbit/s"]))


def plan(options: argparse.Namespace, problems: Sequence[Problem]) -> Iterable[list[Cell]]:
    """What is measured between two measurements of one node: some runs of Minga's, or torch's together."""
    for seed in options.seeds:
        for problem in problems:
            names = [name for name in options.contestants if name not in (DDP, POWERSGD)]
            for again in range(options.repetitions):
                ours = [
                    cell_of(problem, name, bandwidth, seed, again) for bandwidth in options.bandwidths for name in names
                ]
                ours.append(cell_of(problem, NOTHING, FULL_BANDWIDTH, seed, again))  # what this machine can do at all
                yield from (ours[at : at + options.together] for at in range(0, len(ours), options.together))
            theirs = [name for name in (DDP, POWERSGD) if name in options.contestants and seed in options.seeds_of_ddp]
            networks = options.bandwidths + [FULL_BANDWIDTH] * (FULL_BANDWIDTH not in options.bandwidths)
            yield [cell_of(problem, name, bandwidth, seed) for name in theirs for bandwidth in networks]


def cell_of(problem: Problem, contestant: str, bandwidth: float, seed: int, repetition: int = 0) -> Cell:
    return Cell(
        problem=problem,
        contestant=contestant,
        nodes=1 if contestant == SINGLE else NODES,
        bandwidth=bandwidth,
        seed=seed,
        first_steps=contestant == DDP and bandwidth != FULL_BANDWIDTH,
        repetition=repetition,
    )


def sit(
    sitting: Sequence[Cell], last: tuple[Cell, Outcome] | None, kept: Kept, progress: Progress, task: Any
) -> tuple[Cell, Outcome]:
    """Measure some contestants, with one node before and after them: the machine's speed drifts meanwhile.

    `last`: one node as it was measured at the end of the sitting before; what is returned is for the next one.
    """
    alone = cell_of(sitting[0].problem, SINGLE, FULL_BANDWIDTH, sitting[0].seed)

    def measured(cell: Cell) -> Outcome:
        place = f"{cell.problem.name}, {cell.bandwidth:g} Mbit/s, seed {cell.seed}"
        progress.update(task, description=f"{place}: {time_figures.label(cell.contestant)}")
        return contest.measure(cell)

    before = last[1] if last is not None and last[0] == alone else measured(alone)
    outcomes = []
    for cell in sitting:
        outcomes.append(measured(cell))
        progress.advance(task)
    after = measured(alone)
    for cell, outcome in zip(sitting, outcomes, strict=True):
        kept.keep(cell, outcome, contest.between(before, after))
    return alone, after


def rows_of(options: argparse.Namespace, problems: Sequence[Problem], kept: Kept) -> list[dict[str, Any]]:
    rows = []
    for problem in problems:
        for bandwidth in options.bandwidths:
            ones: list[Outcome] = []
            contested = []
            for name in [*options.contestants, NOTHING]:
                cells = [
                    cell_of(problem, name, bandwidth, seed, again)
                    for seed in options.seeds
                    for again in range(options.repetitions)
                ]
                pairs = [pair_of(cell, kept) for cell in cells if cell in kept]
                pairs = [(mine, one) for mine, one in pairs if mine.curve or mine.died]
                if pairs:
                    reached = [part_of_what_two_reach(cell, kept) for cell in cells if cell in kept]
                    contested.append(row_of(problem, bandwidth, name, pairs, reached))
                    ones += [one for _, one in pairs]
            if ones:
                rows.append(row_of(problem, bandwidth, SINGLE, [(one, one) for one in ones]))
            rows += contested
    return rows


def pair_of(cell: Cell, kept: Kept) -> tuple[Outcome, Outcome]:
    """A contestant's outcome and one node's; DDP's accuracy at each step is that of the run to its end."""
    mine, one = kept[cell]
    assert one is not None
    whole = cell_of(cell.problem, cell.contestant, FULL_BANDWIDTH, cell.seed)
    if cell.first_steps and whole in kept:
        curve = [[step * mine.seconds / mine.steps, accuracy, step] for _, accuracy, step in kept[whole][0].curve]
        mine = Outcome(**{**vars(mine), "curve": curve})
    return mine, one


def part_of_what_two_reach(cell: Cell, kept: Kept) -> float | None:
    """The speed-up over that of two nodes that exchange nothing, measured in the same round: what exchanging costs.

    What two nodes reach at all changes from hour to hour on a machine whose caches and memory others use too.
    """
    nothing = replace(cell, contestant=NOTHING, bandwidth=FULL_BANDWIDTH, first_steps=False)
    if cell not in kept or nothing not in kept or kept[cell][0].died:
        return None
    (mine, one), (theirs, beside) = pair_of(cell, kept), pair_of(nothing, kept)
    return (one.seconds / mine.seconds) / (beside.seconds / theirs.seconds)


HIDDEN = (
    "curve",
    "lowest",
    "highest",
    "accuracy",
    "one node's accuracy",
    "seconds to 99 %",
    "reached 99 %",
    "repetitions",
)
"""What the result file has and the printed table, for its width, has not."""


def row_of(
    problem: Problem,
    bandwidth: float,
    contestant: str,
    pairs: Sequence[tuple[Outcome, Outcome]],
    parts: Sequence[float | None] = (),
) -> dict[str, Any]:
    """Medians over seeds and repetitions; a contestant is compared with the one node that was measured beside it."""
    alive = [(mine, one) for mine, one in pairs if not mine.died]
    speed_ups = [one.seconds / mine.seconds for mine, one in alive]
    reached = [(seconds_to_target(mine, one), seconds_to_target(one, one)) for mine, one in alive]
    there = [(mine, one) for mine, one in reached if mine is not None and one is not None]
    steps = sorted({mine.measured_steps for mine, _ in alive if mine.measured_steps is not None})
    return {
        "workload": problem.name,
        "Mbit/s": bandwidth,
        "contestant": contestant,
        "seconds": _median([mine.seconds for mine, _ in alive]),
        "speed-up": _median(speed_ups),
        "lowest": min(speed_ups, default=None),
        "highest": max(speed_ups, default=None),
        "of what two reach": _median([part for part in parts if part is not None]),
        "accuracy": _median([mine.curve[-1][1] for mine, _ in alive]),
        "one node's accuracy": _median([one.curve[-1][1] for _, one in alive]),
        "points to one node": _median([100 * (mine.curve[-1][1] - one.curve[-1][1]) for mine, one in alive]),
        "seconds to 99 %": _median([mine for mine, _ in there]) if len(there) == len(alive) else None,
        "speed-up to 99 %": _median([one / mine for mine, one in there]) if len(there) == len(alive) else None,
        "reached 99 %": f"{len(there)} of {len(alive)}",
        "MB sent": _median([mine.bytes / 1e6 for mine, _ in alive]),
        "how": f"extrapolated from {' to '.join(map(str, {steps[0]: 0, steps[-1]: 0}))} steps" if steps else "measured",
        "aborts": sum(mine.aborts for mine, _ in pairs),
        "repetitions": len(alive),
        "curve": [
            [statistics.median(values) for values in zip(*moments, strict=True)]
            for moments in zip(*(mine.curve for mine, _ in alive), strict=False)
        ],
    }


def seconds_to_target(outcome: Outcome, one_node: Outcome) -> float | None:
    """Of training, until the first evaluation with 99 % of one node's final accuracy."""
    enough = TARGET * one_node.curve[-1][1]
    return next((seconds for seconds, accuracy, _ in outcome.curve if accuracy >= enough), None)


def _median(values: Sequence[float]) -> float | None:
    return statistics.median(values) if values else None


def note_of(options: argparse.Namespace) -> str:
    return (
        f"{NODES} nodes with a core each against one, same samples, epochs and total batch; medians of up to "
        f"{len(options.seeds)} seeds and {options.repetitions} repetitions of each; training only; speed-up: seconds "
        "of one node, measured before and after, over the contestant's"
        + ("; quick: few samples, nothing to conclude from" if options.quick else "")
    )


# --- four nodes --------------------------------------------------------------------------------------------------

FOUR_NODES_NOTE = "4 nodes that share 2 cores, 10 Mbit/s, same total batch: TCP payload that all nodes send in an epoch"


def four_nodes(options: argparse.Namespace, problems: Sequence[Problem], kept: Kept) -> list[dict[str, Any]]:
    """Bytes of an epoch, of DDP (from its first steps, which are all alike) and of Minga's contestants."""
    names = [name for name in options.contestants if name != POWERSGD]
    rows = []
    with _progress() as progress:
        task = progress.add_task("", total=len(problems) * len(names))
        for problem in problems:
            bytes_of_ddp = None
            for name in names:
                progress.update(task, description=f"{problem.name}, four nodes: {name}")
                cell = Cell(problem=problem, contestant=name, nodes=4, bandwidth=10.0, seed=0, first_steps=name == DDP)
                if cell not in kept:
                    kept.keep(cell, contest.measure(cell))
                outcome = kept[cell][0]
                of_epoch = outcome.bytes / problem.epochs / 1e6
                bytes_of_ddp = of_epoch if name == DDP else bytes_of_ddp
                rows.append(
                    {
                        "workload": problem.name,
                        "contestant": name,
                        "MB per epoch": of_epoch,
                        "DDP's bytes / these": bytes_of_ddp / of_epoch if bytes_of_ddp else None,
                        "seconds": outcome.seconds,
                        "accuracy": outcome.accuracy,
                        "how": f"extrapolated from {outcome.measured_steps} steps"
                        if outcome.measured_steps
                        else "measured",
                    }
                )
                progress.advance(task)
    return rows


def _progress() -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=Console(stderr=True),
    )


if __name__ == "__main__":
    main()
