"""How far are predictions from measurements? A grid of cells in the lab, each predicted before and measured then.

    MINGA_DATA=DIR python benchmarks/predictions.py           # about half an hour; a stopped one goes on
    MINGA_DATA=DIR python benchmarks/predictions.py --quick   # some cells: does it all work?
    MINGA_DATA=DIR python benchmarks/predictions.py --elsewhere   # other networks, for which nothing was mended
    python benchmarks/predictions.py --draw                   # only the figure, from the result file

Two nodes with a core each (Linux). What the simulator knows of this machine is a profile of each workload, measured
with both cores busy, and what `minga probe` measures on hosts whose links have no limit: none of the judged cells.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import statistics
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import harness
from rich.console import Console
from rich.progress import track

from minga import Cluster, Experiment, Training, run
from minga.comm.probing import Links
from minga.measure.event_reader import event_files, events_of, read_events
from minga.measure.events import Finished, Stepped
from minga.plan.candidates import Candidate
from minga.plan.cluster import CarrierCosts, PlannedCluster, cluster_of
from minga.plan.pricing import price
from minga.runs.network import Network
from minga.simulate.profile import Profile, load_profile, save_profile
from minga.simulate.profiling import measure_profile
from minga.strategies import Strategy

FOLDER = Path(__file__).parent
SCRATCH = FOLDER.parent / "runs" / "benchmarks" / "predictions"
FIGURES = FOLDER.parent / "docs" / "results"
WORKLOADS = {
    "CNN": (f"{FOLDER / 'recipes.py'}:fashion_mnist", 64),
    "transformer": (f"{FOLDER / 'recipes.py'}:shakespeare", 16),
}
STRATEGIES = [
    "ring",
    "ring:codec=half",
    "ring:codec=(power_sgd:rank=2)",
    "ps:mode=sync",
    "local_sgd:period=8",
    "local_sgd:period=8,overlap=8,codec=int8",
]
BANDWIDTHS = [10.0, 30.0, 100.0, 1000.0]
DELAYS = [0.0, 0.01]
ELSEWHERE = [(20.0, 0.005), (50.0, 0.03), (300.0, 0.002)]
"""Networks on which nobody has looked while the simulator was made."""
PERIOD = 8
SECONDS_OF_A_CELL = 6.0
FEWEST_PERIODS = 2
NEAR = 1.15
REPETITIONS = 5


@dataclass(frozen=True)
class Cell:
    workload: str
    strategy: str
    bandwidth: float
    delay: float

    @property
    def network(self) -> Network:
        return Network(bandwidth=self.bandwidth * 1e6, delay=self.delay)

    @property
    def place(self) -> tuple[str, float, float]:
        """Within this, strategies are compared."""
        return self.workload, self.bandwidth, self.delay


def cells(networks: Iterable[tuple[float, float]], strategies: Sequence[str]) -> Iterator[Cell]:
    for workload in WORKLOADS:
        for bandwidth, delay in networks:
            for strategy in strategies:
                yield Cell(workload, strategy, bandwidth, delay)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="eight cells; saved elsewhere")
    parser.add_argument("--fresh", action="store_true", help="forget what an earlier, stopped benchmark has measured")
    parser.add_argument("--elsewhere", action="store_true", help="networks on which nobody has looked before")
    parser.add_argument("--draw", action="store_true", help="only the figure, from the result file")
    options = parser.parse_args()
    folder = SCRATCH if options.quick else harness.RESULTS
    name = "predictions_elsewhere" if options.elsewhere else "predictions"
    if not options.draw:
        SCRATCH.mkdir(parents=True, exist_ok=True)
        networks = ELSEWHERE if options.elsewhere else list(itertools.product(BANDWIDTHS, DELAYS))
        some = list(cells(networks[2:5:2] if options.quick else networks, STRATEGIES[: 2 if options.quick else None]))
        rows = measure(some, fresh=options.fresh)
        note = summary_of(rows)
        harness.show(rows, note)
        harness.write(name, rows, note, script="predictions", folder=folder)
        keep_inputs(folder / f"{name}_inputs.json", {cell.workload for cell in some})
    rows = json.loads((folder / f"{name}.json").read_text())["rows"]
    draw(rows, (SCRATCH if options.quick else FIGURES) / f"{name}.svg")


def measure(wanted: Sequence[Cell], *, fresh: bool) -> list[dict[str, Any]]:
    path = SCRATCH / "measured.jsonl"
    if fresh:
        for old in SCRATCH.glob("*"):
            old.unlink()
    known: dict[Cell, list[float]] = {}
    for entry in map(json.loads, _lines(path)):
        known.setdefault(Cell(**entry["cell"]), []).append(entry["seconds"])
    profiles = {name: profile_of(name) for name in dict.fromkeys(cell.workload for cell in wanted)}
    carrier = carrier_of_this_machine()
    predicted = {cell: predicted_step(cell, profiles[cell.workload], carrier) for cell in wanted}

    def look(cell: Cell) -> None:
        known.setdefault(cell, []).append(measured_step(cell, predicted[cell]))
        with path.open("a") as file:
            file.write(json.dumps({"cell": asdict(cell), "seconds": known[cell][-1]}) + "\n")

    console = Console(stderr=True)
    for cell in track([cell for cell in wanted if cell not in known], "all cells", console=console):
        look(cell)
    near = near_the_best(wanted, known, predicted)
    rounds = [cell for turn in range(1, REPETITIONS) for cell in near if len(known[cell]) <= turn]
    for cell in track(rounds, "those near the best, in turn", console=console):
        look(cell)
    return [row_of(cell, known[cell], predicted[cell]) for cell in wanted]


def keep_inputs(path: Path, workloads: Iterable[str]) -> None:
    """All that the predictions are made of, so that anybody can make them again."""
    profiles = {name: json.loads((SCRATCH / f"{name}.profile.json").read_text()) for name in sorted(workloads)}
    for profile in profiles.values():  # paths of this machine say nothing to others
        profile["workload"] = Path(profile["workload"]).name
    links = json.loads((SCRATCH / "links.json").read_text())
    path.write_text(json.dumps({"profiles": profiles, "links": links}, indent=1) + "\n")


def predicted_step(cell: Cell, profile: Profile, carrier: CarrierCosts) -> float:
    candidate = Candidate(Strategy.from_value(cell.strategy), 2, WORKLOADS[cell.workload][1])
    return price(candidate, profile, PlannedCluster(nodes=2, network=cell.network, carrier=carrier)).step_seconds


def near_the_best(wanted: Sequence[Cell], known: dict[Cell, list[float]], predicted: dict[Cell, float]) -> list[Cell]:
    """Who is the quickest can't be told from one measurement each, where several are as quick."""
    near = []
    for cell in wanted:
        rivals = [other for other in wanted if other.place == cell.place]
        quickest = min(known[other][0] for other in rivals)
        expected = min(predicted[other] for other in rivals)
        if known[cell][0] <= NEAR * quickest or predicted[cell] <= NEAR * expected:
            near.append(cell)
    return [cell for cell in near if sum(other.place == cell.place for other in near) > 1]


def row_of(cell: Cell, measured: Sequence[float], predicted: float) -> dict[str, Any]:
    seconds = statistics.median(measured)
    return {
        "workload": cell.workload,
        "strategy": cell.strategy,
        "Mbit/s": cell.bandwidth,
        "delay, ms": 1000 * cell.delay,
        "measured, ms": 1000 * seconds,
        "predicted, ms": 1000 * predicted,
        "error": predicted / seconds - 1,
        "repetitions": len(measured),
    }


def _lines(path: Path) -> list[str]:
    return (
        [line for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")] if path.is_file() else []
    )


def profile_of(workload: str) -> Profile:
    path = SCRATCH / f"{workload}.profile.json"
    if not path.is_file():
        reference, batch = WORKLOADS[workload]
        save_profile(measure_profile(reference, batches=[batch], processes=2, pin=True), path)
    return load_profile(path)


def carrier_of_this_machine() -> CarrierCosts:
    """From words and bytes between two hosts without limits."""
    path = SCRATCH / "links.json"
    if not path.is_file():
        with tempfile.TemporaryDirectory() as folder:
            summary = run(
                Experiment(
                    workload="digits",
                    strategy="probe",  # type: ignore[arg-type]
                    cluster=Cluster(nodes=2, network=Network(), pin=True, transport="tcp"),
                    training=Training(steps=1, evaluate_every=0),
                    runs=folder,
                )
            )
            ends = events_of(Path(summary.run), Finished)
        path.write_text(json.dumps(next(end.notes["links"] for end in ends if "links" in end.notes)))
    return carrier_of(Links.from_value(json.loads(path.read_text())))


def carrier_of(links: Links) -> CarrierCosts:
    """As `minga probe --out` has it; what is left of a word's way without any cable is waking up."""
    machines = cluster_of(links)
    return dataclasses.replace(machines.carrier, wake_seconds=machines.delays[0][1])


def measured_step(cell: Cell, expected: float) -> float:
    """Of whole periods, of the slower rank; the first period does not count."""
    periods = max(FEWEST_PERIODS, min(20, round(SECONDS_OF_A_CELL / (PERIOD * expected))))
    reference, batch = WORKLOADS[cell.workload]
    with tempfile.TemporaryDirectory() as folder:
        summary = run(
            Experiment(
                workload=reference,
                strategy=cell.strategy,  # type: ignore[arg-type]
                cluster=Cluster(nodes=2, network=cell.network, pin=True, transport="tcp"),
                training=Training(steps=(periods + 1) * PERIOD, batch=batch, evaluate_every=0),
                runs=folder,
            )
        )
        times = [
            [event.time for event in read_events(path) if isinstance(event, Stepped)]
            for path in event_files(Path(summary.run))
        ]
    return max((moments[-1] - moments[PERIOD - 1]) / (periods * PERIOD) for moments in times if moments)


def summary_of(rows: Sequence[dict[str, Any]]) -> str:
    errors = sorted(abs(row["error"]) for row in rows)
    ninety = errors[min(len(errors) - 1, int(0.9 * len(errors)))]
    groups: dict[Any, list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["workload"], row["Mbit/s"], row["delay, ms"]), []).append(row)
    right, losses = 0, []
    for group in groups.values():
        best = min(group, key=lambda row: row["measured, ms"])
        chosen = min(group, key=lambda row: row["predicted, ms"])
        right += chosen is best
        losses.append(chosen["measured, ms"] / best["measured, ms"] - 1)
    pairs = [
        (a["measured, ms"] < b["measured, ms"]) == (a["predicted, ms"] < b["predicted, ms"])
        for group in groups.values()
        for a, b in itertools.combinations(group, 2)
        if not 1 / NEAR < a["measured, ms"] / b["measured, ms"] < NEAR
    ]
    return (
        f"two nodes, a core each; step times: median error {statistics.median(errors):.1%}, 90th percentile "
        f"{ninety:.1%} of {len(rows)} cells; the quickest named first in {right} of {len(groups)} networks; following "
        f"the prediction costs at most {max(losses):.1%}; of {len(pairs)} pairs of strategies that are more than "
        f"{NEAR - 1:.0%} apart, {sum(pairs)} are in the right order"
    )


def draw(rows: Sequence[dict[str, Any]], path: Path) -> None:
    import time_figures

    time_figures.draw_predictions(rows, path)


if __name__ == "__main__":
    main()
