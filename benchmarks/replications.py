"""Published results at a small scale: the numbers and figures of docs/results/{power-sgd,diloco,top-k}.md.

minga bench power-sgd                                    # into studies/power-sgd; also: diloco, top-k
python benchmarks/replications.py power-sgd              # its table and figure, from there
python benchmarks/replications.py power-sgd --draw       # only the figure, from the table
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import harness

from minga.measure.event_reader import event_files, read_events
from minga.measure.events import Evaluated, Finished, Stepped
from minga.study import load_study
from minga.study.results import Result, Results

PAGES = Path(__file__).parents[1] / "docs" / "results"
WINDOW = 20  # steps whose training loss is one point of a curve
NAMES = {
    "none": "whole gradients",
    "power_sgd:rank=1": "rank 1",
    "power_sgd:rank=2": "rank 2",
    "power_sgd:rank=4": "rank 4",
    "power_sgd:rank=2,feedback=false": "rank 2, no feedback",
    "top_k:ratio=0.01": "top 1 %",
    "top_k:ratio=0.01,momentum_correction=true": "top 1 %, momentum correction",
    "top_k:ratio=0.01,feedback=false": "top 1 %, no feedback",
}
INK, QUIET = "#333333", "#777777"
COLOURS = ("#333333", "#1b6ca8", "#2a9d8f", "#e09f3e", "#d1495b", "#6a4c93")


def collect(name: str, directory: Path) -> list[dict[str, Any]]:
    """A row for each cell of the study, from its runs' events."""
    study = load_study(name)
    found = Results(directory / "results.jsonl").latest()
    rows = []
    for cell in study.cells:
        done = [found.get((cell.identity, repetition)) for repetition in range(study.repetitions)]
        runs = [_run(directory, result) for result in done if result is not None and result.state == "done"]
        if len(runs) < study.repetitions:
            raise SystemExit(f"{cell.label}: {len(runs)} of {study.repetitions} runs are there; minga bench {name}")
        curves = [run["curve"] for run in runs]
        rows.append(
            {
                "variant": cell.environment or NAMES.get(cell.values["codec"], cell.values["codec"]),
                "nodes": cell.experiment.cluster.nodes,
                "steps": runs[0]["steps"],
                "bytes per step": statistics.median(run["bytes"] for run in runs),
                "accuracy": [run["accuracy"] for run in runs],
                "loss": [run["loss"] for run in runs],
                "training loss": [
                    [round(value, 4) for value in (statistics.median(point), min(point), max(point))]
                    for point in zip(*curves, strict=True)
                ],
            }
        )
    return rows


def _run(directory: Path, result: Result) -> dict[str, Any]:
    """Of one run: quality on the test set, bytes that a node sends in a step, the training loss of all nodes."""
    assert result.run is not None
    losses: dict[int, list[float]] = {}
    sent, steps, quality = [], 0, {}
    for file in event_files(directory / result.run):
        for event in read_events(file):
            if isinstance(event, Stepped) and event.loss is not None:
                losses.setdefault((event.step - 1) // WINDOW, []).append(event.loss)
            elif isinstance(event, Finished):
                steps = event.steps
                sent.append(event.bytes_sent / steps)
            elif isinstance(event, Evaluated):
                quality = event.metrics
    return {
        "steps": steps,
        "bytes": statistics.mean(sent),
        "accuracy": quality["accuracy"],
        "loss": quality["loss"],
        "curve": [statistics.mean(losses[window]) for window in sorted(losses)],
    }


def table(rows: Sequence[dict[str, Any]], baseline: str) -> list[dict[str, Any]]:
    """What is printed, and stands in the page."""
    whole = next(row["bytes per step"] for row in rows if row["variant"] == baseline)
    return [
        {
            "variant": row["variant"],
            "bytes per step": f"{row['bytes per step']:,.0f}",
            "fewer": f"{whole / row['bytes per step']:.1f}x" if row["bytes per step"] else "-",
            "test accuracy, %": _spread([100 * value for value in row["accuracy"]], 1),
            "test loss": _spread(row["loss"], 3),
        }
        for row in rows
    ]


def _spread(values: Sequence[float], digits: int) -> str:
    return f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f} to {max(values):.{digits}f})"


def draw(rows: Sequence[dict[str, Any]], baseline: str, path: Path) -> None:
    """Training loss on the way, test accuracy at the end, bytes of a step."""
    import matplotlib

    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    plt.rcParams.update(
        {"svg.hashsalt": "minga", "font.size": 10, "axes.spines.top": False, "axes.spines.right": False}
    )
    plt.rcParams.update({"axes.edgecolor": "#999999", "text.color": INK, "axes.labelcolor": INK})
    figure, (curves, reached, sent) = plt.subplots(
        1, 3, figsize=(12, 3.6), width_ratios=(1.5, 1, 1.15), layout="constrained"
    )
    places = range(len(rows))[::-1]
    for place, row, colour in zip(places, rows, COLOURS, strict=False):
        steps = [min((window + 0.5) * WINDOW, row["steps"]) for window in range(len(row["training loss"]))]
        middle, lowest, highest = zip(*row["training loss"], strict=True)
        curves.fill_between(steps, lowest, highest, color=colour, alpha=0.15, linewidth=0)
        curves.plot(steps, middle, color=colour, linewidth=1.8, label=row["variant"])
        accuracies = [100 * value for value in row["accuracy"]]
        reached.plot(accuracies, [place] * len(accuracies), "o", color=colour, alpha=0.45, markersize=5)
        reached.plot(statistics.median(accuracies), place, "|", color=colour, markersize=20, markeredgewidth=2.5)
        if row["bytes per step"]:
            sent.plot(row["bytes per step"], place, "o", color=colour, markersize=9)
    curves.set(xlabel="steps", ylabel=f"training loss, mean of {WINDOW} steps")
    curves.grid(alpha=0.25)
    curves.legend(frameon=False, fontsize=9)
    reached.set(xlabel="test accuracy, %", ylim=(-0.6, len(rows) - 0.4))
    reached.set_yticks(places, [row["variant"] for row in rows])
    reached.tick_params(axis="y", length=0)
    reached.grid(alpha=0.25, axis="x")
    whole = next(row["bytes per step"] for row in rows if row["variant"] == baseline)
    least = min(row["bytes per step"] for row in rows if row["bytes per step"])
    sent.set_xscale("log")
    sent.grid(alpha=0.25, axis="x")
    sent.set(
        xlabel="bytes that a node sends per step", ylim=reached.get_ylim(), xlim=(least / 4, whole * 12), yticks=[]
    )
    for place, row in zip(places, rows, strict=True):
        amount = row["bytes per step"]
        fewer = "" if row["variant"] == baseline or not amount else f" ({whole / amount:.0f}x fewer)"
        text = f"{amount:,.0f}{fewer}" if amount else "nothing"
        sent.text(1.6 * (amount or least / 4), place, text, va="center", fontsize=8, color=QUIET)
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("study", choices=["power-sgd", "diloco", "top-k"])
    parser.add_argument("--directory", type=Path, help="of the study; default: studies/NAME")
    parser.add_argument("--draw", action="store_true", help="only the figure, from the table")
    options = parser.parse_args()
    name: str = options.study
    baseline = "synchronous" if name == "diloco" else NAMES["none"]
    if options.draw:
        rows = json.loads((PAGES / f"{name}.json").read_text())["rows"]
    else:
        rows = collect(name, options.directory or Path("studies") / name)
        note = f"minga bench {name}; each list has a value for each seed; training loss: median, least, most"
        harness.write(name, rows, note, script="replications", folder=PAGES)
    harness.show(table(rows, baseline), f"{name}: median (lowest to highest)")
    draw(rows, baseline, PAGES / f"{name}.svg")


if __name__ == "__main__":
    main()
