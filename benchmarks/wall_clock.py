"""From the command to its result: two nodes against one on everybody's clock, starting, evaluating and saving included.

MINGA_DATA=DIR python benchmarks/wall_clock.py                                   # some hours; a stopped one goes on
MINGA_DATA=DIR python benchmarks/wall_clock.py --problems wide --links 5mbit 20mbit/40ms 100mbit:5mbit --seeds 0
MINGA_DATA=DIR python benchmarks/wall_clock.py --quick

Each contestant is `minga train` in a process of its own, on hosts of a lab with one core each, evaluated after each
epoch, as is the default. `nothing` are two nodes that exchange nothing: what two cores of this machine reach at all.
A link is RATE[:UP][/DELAY]: 100mbit:5mbit is 100 down and 5 up.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import contest
import harness
from rich.console import Console
from rich.progress import track

from minga import Cluster, Experiment, Training
from minga.base.units import parse_bandwidth, parse_duration
from minga.runs.network import Network

RECIPES = Path(__file__).parent / "recipes.py"
PROBLEMS = {
    "small": ("fashion_mnist", 5, 128),
    "wide": ("wide_convolutions", 3, 128),
    "gru": ("character_gru", 4, 64),
    "transformer": ("shakespeare", 4, 64),
}
"""Recipe, epochs, samples of all nodes in a step."""
LINKS = ["3mbit", "10mbit", "20mbit", "100mbit", "1gbit", "3mbit/40ms", "10mbit/40ms", "20mbit/40ms", "100mbit/40ms"]
UNEVEN = "100mbit:5mbit"
CONTESTANTS = ["single", "nothing", "adaptive"]


def network_of(link: str) -> Network:
    rates, _, delay = link.partition("/")
    down, _, up = rates.partition(":")
    return Network(
        bandwidth=parse_bandwidth(down),
        up=parse_bandwidth(up) if up else None,
        delay=parse_duration(delay) if delay else 0.0,
    )


def experiment_of(problem: str, contestant: str, link: str, seed: int, runs: str) -> Experiment:
    recipe, epochs, batch = PROBLEMS[problem]
    return Experiment(
        workload=f"{RECIPES}:{recipe}",
        strategy={"nothing": contest.NOTHING}.get(contestant, contestant),  # type: ignore[arg-type]
        cluster=Cluster(nodes=1 if contestant == "single" else 2, network=network_of(link), pin=True),
        training=Training(epochs=epochs, total_batch=batch, seed=seed),
        runs=runs,
    )


def measure(problem: str, contestant: str, link: str, seed: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        description = Path(folder) / "experiment.toml"
        description.write_text(experiment_of(problem, contestant, link, seed, folder).to_toml())
        began = time.monotonic()
        command = [sys.executable, "-m", "minga", "train", str(description), "--json"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        seconds = time.monotonic() - began
    if done.returncode:
        sys.exit(f"{contestant} on {problem}, {link}, seed {seed}: {done.stderr}")
    found = json.loads(done.stdout)
    sent = sum(rank["interface"]["payload_sent"] for rank in found["ranks"] if rank.get("interface"))
    return {
        "wall": seconds,
        "training": found["seconds"],
        "evaluating": found["evaluate_seconds"],
        "accuracy": found["accuracy"],
        "megabytes": sent / 1e6,
    }


def rows_of(kept: dict[str, dict[str, Any]], options: argparse.Namespace) -> list[dict[str, Any]]:
    rows = []
    for problem in options.problems:
        for link in options.links:
            cells = {
                name: [found for seed in options.seeds if (found := kept.get(key(problem, name, link, seed)))]
                for name in options.contestants
            }
            if not all(cells.values()):
                continue
            row: dict[str, Any] = {"problem": problem, "link": link, "seeds": len(options.seeds)}
            for name, runs in cells.items():
                row[f"{name}, s"] = statistics.median(each["wall"] for each in runs)
                row[f"{name}, training s"] = statistics.median(each["training"] for each in runs)
                row[f"{name}, accuracy"] = statistics.median(each["accuracy"] for each in runs)
                if name != "single":
                    row[f"{name}, MB"] = statistics.median(each["megabytes"] for each in runs)
                    pairs = zip(cells["single"], runs, strict=False)
                    row[f"{name}, speed-up"] = statistics.median(one["wall"] / mine["wall"] for one, mine in pairs)
            rows.append(row)
    return rows


def key(problem: str, contestant: str, link: str, seed: int) -> str:
    return f"{problem} {contestant} {link} {seed}"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--problems", nargs="+", choices=list(PROBLEMS), default=list(PROBLEMS))
    parser.add_argument("--links", nargs="+", default=[*LINKS, UNEVEN])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--contestants", nargs="+", default=CONTESTANTS)
    parser.add_argument("--quick", action="store_true", help="one problem, two links, once; saved elsewhere")
    parser.add_argument("--fresh", action="store_true", help="forget what an earlier, stopped benchmark has measured")
    options = parser.parse_args()
    if options.quick:
        options.problems, options.links, options.seeds = ["gru"], ["10mbit", "1gbit"], [0]
    os.environ["MINGA_DATA"] = str(Path(os.environ["MINGA_DATA"]).resolve())
    contest.SCRATCH.mkdir(parents=True, exist_ok=True)
    path = contest.SCRATCH / f"wall_clock{'_quick' if options.quick else ''}.json"
    if options.fresh:
        path.unlink(missing_ok=True)
    kept: dict[str, dict[str, Any]] = json.loads(path.read_text()) if path.is_file() else {}
    cells = [
        (problem, name, link, seed)
        for seed in options.seeds
        for problem in options.problems
        for link in options.links
        for name in options.contestants
    ]
    missing = [cell for cell in cells if key(*cell) not in kept]
    for cell in track(missing, console=Console(stderr=True)):
        kept[key(*cell)] = measure(*cell)
        path.write_text(json.dumps(kept, indent=1))
    rows = rows_of(kept, options)
    note = "seconds from the command to its end; medians over seeds; two hosts with a core each"
    harness.write("wall_clock", rows, note, folder=contest.SCRATCH if options.quick else harness.RESULTS)
    harness.show(rows, note)


if __name__ == "__main__":
    main()
