"""`docs/results/theses.md`, written from the result files of `theses.py` alone: a section for each part that has one.

python benchmarks/theses.py --page
"""

from __future__ import annotations

import json
import statistics
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import harness

PAGE = Path(__file__).parents[1] / "docs" / "results" / "theses.md"

Row = dict[str, Any]

HEAD = """# The theses' models on their data

**Question.** Do the models that four theses trained on several machines reach here, on the same data, what they reached
there, on one node and on several?

Medians over seeds, with the lowest and the highest where there are several. This page is written from the result files
by `python benchmarks/theses.py --page`.
"""


def write_page() -> None:
    """What there are results for; no page where there are none."""
    found = {name: _rows(name) for name in SECTIONS}
    written = [SECTIONS[name](rows) + _again(name) for name, rows in found.items() if rows]
    if written:
        PAGE.write_text("\n".join([HEAD, *written]), encoding="utf-8")


def _rows(name: str) -> list[Row]:
    path = harness.RESULTS / f"theses_{name}.json"
    return list(json.loads(path.read_text())["rows"]) if path.is_file() else []


def _again(name: str) -> str:
    file = f"benchmarks/results/theses_{name}.json"
    return (
        f"\n\n**Again:** `MINGA_DATA=DIR python benchmarks/theses.py {name}`, which writes [`{file}`](../../{file}).\n"
    )


def _accuracies(title: str, setting: str) -> Callable[[list[Row]], str]:
    """A section on accuracy: each way beside one node."""

    def section(rows: list[Row]) -> str:
        one = [row["accuracy"] for row in rows if row["strategy"] == "single"]
        lines = []
        for same in _groups(rows, "workload", "strategy", "nodes", "BatchNorm over"):
            points = 100 * (_median(same, "accuracy") - statistics.median(one))
            beside = "-" if same[0]["strategy"] == "single" else f"{points:+.2f}"
            own = same[0]["workload"].endswith("-adam")
            apart = same[0]["nodes"] > 1 and same[0].get("BatchNorm over") == "each node's own"
            lines.append(
                [
                    f"`{same[0]['strategy']}`"
                    + (", Adam with 0.01, 64 for each worker" if own else "")
                    + (", BatchNorm over each node's own samples" if apart else ""),
                    same[0]["nodes"],
                    _spread([100 * row["accuracy"] for row in same], 2),
                    beside,
                    _spread([row["seconds"] for row in same], 0),
                    len(same),
                ]
            )
        columns = ["strategy", "workers", "test accuracy, %", "points to one node", "seconds of training", "runs"]
        return f"## {title}\n\n{_filled(setting)}\n\n{_table(columns, lines)}"

    return section


def _accuracies_and_speed(title: str, setting: str) -> Callable[[list[Row]], str]:
    """With how fast one node is beside a loop written by hand."""
    accuracies = _accuracies(title, setting)

    def section(rows: list[Row]) -> str:
        file = "benchmarks/results/single_overhead.json"
        measured = json.loads((harness.RESULTS / "single_overhead.json").read_text())["rows"]
        (lenet,) = (row for row in measured if row["model"] == "LeNet-5")
        speed = (
            f"One node takes {lenet['time ratio']:.2f} times as long as a loop for the same model written by hand in "
            f"PyTorch ({lenet['minga, ms per step']:.1f} ms a step of 64 pictures, made-up ones; median of "
            f"{lenet['repetitions']} in turns: [`{file}`](../../{file}), `python benchmarks/single_overhead.py`)."
        )
        return f"{accuracies(rows)}\n\n{_filled(speed)}"

    return section


def _back_in_keras(rows: list[Row]) -> str:
    columns = ["strategy", "nodes", "test accuracy, %", "the same file in Keras, %", "MB of the file", "runs"]
    lines = [
        [
            f"`{same[0]['strategy']}`",
            same[0]["nodes"],
            *(_spread([100 * row[key] for row in same], 2) for key in ("accuracy", "accuracy told by Keras")),
            _number(_median(same, "file MB"), 1),
            len(same),
        ]
        for same in _groups(rows, "strategy", "nodes")
    ]
    setting = (
        "[`examples/keras_cifar10.py`](../../examples/keras_cifar10.py), the same network as a compiled Keras model, "
        f"on the first 4,000 pictures, {rows[0]['epochs']:g} epochs ({rows[0]['steps']} steps), "
        f"{rows[0]['batch of all nodes']} in a step of all nodes, a rate of 0.003; tested on the first 2,000 of the "
        "test set. Afterwards `minga.keras.save` writes a file, `keras.saving.load_model` reads it, and its own "
        "`evaluate` says how good it is on the same pictures."
    )
    return f"## The same as a Keras model\n\n{_filled(setting)}\n\n{_table(columns, lines)}"


def _phases(rows: list[Row]) -> str:
    names = [key for key in rows[-1] if key.endswith(" s") and key not in ("EDP, kJ s", "wait s")]
    columns = ["strategy", "nodes", "seconds", *names, "kJ", "EDP, kJ s", "accuracy, %"]
    lines = [
        [
            f"`{same[0]['strategy']}`",
            same[0]["nodes"],
            *(_number(_median(same, key), 1) for key in ["seconds", *names, "kJ", "EDP, kJ s"]),
            _number(100 * _median(same, "accuracy"), 1),
        ]
        for same in _groups(rows, "strategy", "nodes")
    ]
    setting = (
        "600 PNG files of 590x445 in a folder for each of 10 classes, scaled to 197x148, grey: Fashion-MNIST's, "
        "enlarged, in the place of the thesis' fish, so the accuracy says nothing of theirs. "
        f"{rows[0]['epochs']:g} epochs ({rows[0]['steps']} steps), {rows[0]['batch of all nodes']} in a step of all "
        "nodes, SGD with a tenth of the thesis' rate (with all of it the first steps are chaos), a core for each node. "
        f"Phases are those of the slowest rank; energy: {rows[0]['energy from']}."
    )
    return f"## ResNet-34 on a folder of pictures (Cantabria)\n\n{_filled(setting)}\n\n{_table(columns, lines)}"


def _captions(rows: list[Row]) -> str:
    orders = [f"test BLEU-{order}" for order in range(1, 5)]
    columns = ["hosts", "strategy", "beam", *(name.removeprefix("test ") for name in orders)]
    columns += ["BLEU-1 without `a`", "seconds of training", "times as fast as one", "runs"]
    lines = []
    for same in _groups(rows, "strategy", "nodes", "beam"):
        alone = {row["seed"]: row["seconds"] for row in rows if row["nodes"] == 1}
        faster = [alone[row["seed"]] / row["seconds"] for row in same if row["seed"] in alone]
        lines.append(
            [
                same[0]["nodes"],
                f"`{same[0]['strategy']}`",
                same[0]["beam"],
                *(_spread([row[name] for row in same], 3) for name in [*orders, "test BLEU-1 without a"]),
                _spread([row["seconds"] for row in same], 0),
                _spread(faster, 2),
                len(same),
            ]
        )
    setting = (
        f"The thesis' decoder on precomputed features, {rows[0]['epochs']:g} epochs, {rows[0]['batch of all nodes']} "
        f"captions in a step of all hosts, a core for each host, {rows[0]['Mbit/s']:g} Mbit/s between them. The "
        "thesis' best was BLEU-1 0.578, with features of VGG16, and there two hosts were slower than one. BLEU is of "
        "the standard test split ([captions.md](../captions.md) tells how it is counted)."
    )
    return f"## Captions for Flickr8k (Quito)\n\n{_filled(setting)}\n\n{_table(columns, lines)}\n\n{_some(rows)}"


def _some(rows: list[Row]) -> str:
    """What the last run with a beam of 3, if there is one, says of the first photographs."""
    chosen = [row for row in rows if row["beam"] == 3][-1:] or rows[-1:]
    told = "\n".join(f"- `{name}`: {text}" for name, text in chosen[0]["captions"].items())
    how = f"{chosen[0]['nodes']} hosts, beam {chosen[0]['beam']}, seed {chosen[0]['seed']}"
    intro = (
        f"The first photographs of the test split ({how}; the pictures are their authors': `minga caption --page` "
        f"shows them where they are at hand):"
    )
    return f"{_filled(intro)}\n\n{told}"


SECTIONS: dict[str, Callable[[list[Row]], str]] = {
    "lenet5": _accuracies_and_speed(
        "LeNet-5 on MNIST (Buenos Aires)",
        "All of MNIST, 10 epochs, 64 samples in a step of all workers, SGD with momentum and a rate that falls; "
        "processes on one machine. In the thesis: 0.990 on one node after 60 epochs, 0.978 to 0.963 with a ring of 3 "
        "to 7, and its asynchronous server fell to 47 % with 6 workers and to 10 % with 16 under Adam with 0.01.",
    ),
    "nielsen": _accuracies(
        "Nielsen's network on MNIST (Buenos Aires)",
        "All of MNIST, 20 epochs, batch 10, plain SGD with 0.1 and a rate that falls. In the thesis: 0.989 after "
        "60 epochs.",
    ),
    "cifar10": _accuracies(
        "The network for CIFAR-10 (Kubeflow)",
        "29.6 million parameters, the first 4,000 pictures, 3 epochs, 64 in a step of all nodes, SGD with momentum and "
        "a rate that falls from 0.003, tested on all of the test set; the full recipe: `minga bench cifar10-vgg`. "
        "Seeds decide the first parameters and the order of the pictures, which are the same for one node and two, and "
        "what dropout drops, which is not; so single runs of a seed differ by chance. BatchNorm over a node's own "
        "samples, 32 of a step instead of 64, costs about 2 points while the network still learns fast, however "
        "replicas exchange what they learn.",
    ),
    "keras": _back_in_keras,
    "resnet34": _phases,
    "captions": _captions,
}


def _groups(rows: Sequence[Row], *keys: str) -> list[list[Row]]:
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(str([row.get(key) for key in keys]), []).append(row)
    return list(groups.values())


def _median(rows: Sequence[Row], key: str) -> float:
    return statistics.median(row[key] or 0.0 for row in rows)


def _number(value: float, digits: int) -> str:
    return f"{value:,.{digits}f}"


def _spread(values: Sequence[float], digits: int) -> str:
    if not values:
        return "-"
    middle = _number(statistics.median(values), digits)
    if len(values) == 1:
        return middle
    return f"{middle} ({_number(min(values), digits)} to {_number(max(values), digits)})"


def _filled(text: str) -> str:
    return textwrap.fill(text, width=120, break_long_words=False, break_on_hyphens=False)


def _table(columns: Sequence[str], lines: Sequence[Sequence[Any]]) -> str:
    rows = [columns, ["---"] * len(columns), *lines]
    return "\n".join(f"| {' | '.join(map(str, row))} |" for row in rows)
