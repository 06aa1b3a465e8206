"""The figures of `time_to_accuracy.py` and `never_slower.py`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import contest
from contest import DDP, NOTHING, POWERSGD, SINGLE

COLOURS = {SINGLE: "#333333", DDP: "#b3b3b3", POWERSGD: "#e09f3e", NOTHING: "#777777"}
OURS = ("#1b6ca8", "#6a4c93", "#2a9d8f", "#d1495b")
INK = "#333333"
QUIET = "#777777"


def label(contestant: str) -> str:
    known = {SINGLE: "one node", DDP: "DDP", POWERSGD: "DDP + PowerSGD hook", NOTHING: "two that exchange nothing"}
    return known.get(contestant, f"Minga, {contestant}")


def colours(contestants: Sequence[str]) -> dict[str, str]:
    ours = [name for name in contestants if name not in COLOURS]
    return {**COLOURS, **{name: OURS[index % len(OURS)] for index, name in enumerate(ours)}}


def pick(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Torch's two and Minga's `adaptive`; where it was not measured, all of Minga's that were."""
    names = list(dict.fromkeys(row["contestant"] for row in rows))
    adaptive = [name for name in names if name.startswith("adaptive")]
    ours = adaptive[:1] or [name for name in names if name not in COLOURS]
    return [name for name in (DDP, POWERSGD) if name in names] + ours


def network(mbit: float) -> str:
    return f"{mbit / 1000:g} Gbit/s" if mbit >= 1000 else f"{mbit:g} Mbit/s"


def _plot() -> Any:
    import matplotlib

    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    plt.rcParams.update(
        {
            "svg.hashsalt": "minga",
            "font.size": 10,
            "axes.edgecolor": "#999999",
            "axes.labelcolor": INK,
            "text.color": INK,
            "xtick.color": INK,
            "ytick.color": INK,
            "axes.spines.top": False,
            "axes.spines.right": False,
        }
    )
    return plt


def draw_speed_ups(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """For the top of the README: how many times faster two nodes are than one."""
    plt = _plot()
    workloads = list(dict.fromkeys(row["workload"] for row in rows))
    names = pick(rows)
    colour_of = colours(names)
    figure, panels = plt.subplots(
        1, len(workloads), figsize=(5.2 * len(workloads), 4.3), sharey=True, squeeze=False, layout="constrained"
    )
    top = max([2.0, *(row["highest"] or 0 for row in rows if row["contestant"] in names)])
    for axes, workload in zip(panels[0], workloads, strict=True):
        own = [row for row in rows if row["workload"] == workload]
        bandwidths = sorted({row["Mbit/s"] for row in own})
        axes.axhline(1, color=INK, linewidth=1.1, zorder=1)
        axes.axhline(2, color=QUIET, linewidth=0.9, linestyle=(0, (5, 4)), zorder=1)
        width = 0.84 / len(names)
        for row in own:
            if row["contestant"] == NOTHING:
                axes.axhline(row["speed-up"], color=QUIET, linewidth=0.9, linestyle=(0, (1, 2)), zorder=1)
            if row["contestant"] not in names or row["speed-up"] is None:
                continue
            at = bandwidths.index(row["Mbit/s"]) + (names.index(row["contestant"]) - (len(names) - 1) / 2) * width
            height = row["speed-up"]
            spread = [[height - row["lowest"]], [row["highest"] - height]]
            axes.bar(at, height, 0.92 * width, color=colour_of[row["contestant"]], zorder=2)
            if row["repetitions"] > 1:
                axes.errorbar(at, height, spread, color=INK, linewidth=1, capsize=2, zorder=3)
            place = row["highest"] + 0.03
            text = {"ha": "center", "va": "bottom", "bbox": {"facecolor": "white", "edgecolor": "none", "pad": 0.6}}
            axes.text(at, place, _points(row), fontsize=8, color=QUIET, zorder=4, **text)
            axes.text(at, place + 0.11, _times(height), fontsize=10, weight="bold", zorder=5, **text)
        axes.set_xticks(range(len(bandwidths)), [network(each) for each in bandwidths])
        axes.tick_params(axis="x", length=0)
        axes.set(ylim=(0, top + 0.35), xlim=(-0.55, len(bandwidths) - 0.45))
        axes.set_title(contest.PROBLEMS[workload].title, fontsize=11, pad=8)
        axes.yaxis.set_major_locator(plt.MultipleLocator(0.5))
        # On the left, since DDP's bar is short there.
        axes.text(-0.53, 2.02, "two nodes, ideal", va="bottom", fontsize=8, color=QUIET)
        axes.text(-0.53, 1.02, "one node", va="bottom", fontsize=8, color=INK)
    panels[0][0].set_ylabel("two nodes: times as fast as one")
    handles = [plt.Rectangle((0, 0), 1, 1, color=colour_of[name]) for name in names]
    labels = [label(name) for name in names]
    if any(row["contestant"] == NOTHING for row in rows):
        handles.append(plt.Line2D([], [], color=QUIET, linewidth=0.9, linestyle=(0, (1, 2))))
        labels.append(label(NOTHING))
    handles.append(plt.Line2D([], [], alpha=0))
    labels.append("pt: points of test accuracy against one node")
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False, fontsize=9)
    _save(plt, figure, path)


def _times(value: float) -> str:
    return f"{value:.2f}" if value < 9.995 else f"{value:.1f}"


def _points(row: dict[str, Any]) -> str:
    points = row["points to one node"]
    if points is None:
        return ""
    # A zero has no sign, whatever it was rounded from.
    shown = f"{points:+.1f}" if abs(points) >= 0.05 else "0.0"
    return f"{shown} pt".replace("-", "\N{MINUS SIGN}")


def draw_curves(rows: Sequence[dict[str, Any]], bandwidth: float, path: Path) -> None:
    """Accuracy against time on the slowest network."""
    plt = _plot()
    rows = [row for row in rows if row["Mbit/s"] == bandwidth and row["curve"]]
    workloads = list(dict.fromkeys(row["workload"] for row in rows))
    names = [SINGLE, *pick(rows)]
    colour_of = colours(names)
    figure, panels = plt.subplots(
        1, len(workloads), figsize=(5.2 * len(workloads), 3.7), squeeze=False, layout="constrained"
    )
    for axes, workload in zip(panels[0], workloads, strict=True):
        own = {row["contestant"]: row for row in rows if row["workload"] == workload}
        for name in names:
            if name in own:
                curve = own[name]["curve"]
                places = [100 * accuracy for _, accuracy, _ in curve]
                axes.plot([seconds for seconds, _, _ in curve], places, "o-", ms=4.5, lw=1.8, color=colour_of[name])
        target = 99 * own[SINGLE]["accuracy"]
        axes.axhline(target, color=QUIET, linewidth=0.9, linestyle=(0, (5, 4)), zorder=1)
        axes.text(0.01, target, "99 % of one node's", transform=axes.get_yaxis_transform(), fontsize=8, color=QUIET,
                  va="bottom")  # fmt: skip
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(plt.LogLocator(subs=(1, 2, 5)))
        axes.xaxis.set_major_formatter(plt.FuncFormatter(lambda value, _: f"{value:g}"))
        axes.xaxis.set_minor_locator(plt.NullLocator())
        axes.grid(alpha=0.25)
        axes.set(xlabel=f"seconds of training, {network(bandwidth)}")
        axes.set_title(contest.PROBLEMS[workload].title, fontsize=11, pad=8)
    panels[0][0].set_ylabel("test accuracy, %")
    handles = [plt.Line2D([], [], color=colour_of[name], marker="o", ms=4.5, lw=1.8) for name in names]
    figure.legend(handles, [label(name) for name in names], loc="outside lower center", ncols=len(names), frameon=False)
    _save(plt, figure, path)


def draw_never_slower(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """Speed-up against bandwidth, for one contestant or several."""
    plt = _plot()
    names = list(dict.fromkeys(row["contestant"] for row in rows))
    colour_of = colours(names)
    figure, axes = plt.subplots(figsize=(6.4, 3.4), layout="constrained")
    axes.axhline(1, color=INK, linewidth=1.1)
    axes.axhline(2, color=QUIET, linewidth=0.9, linestyle=(0, (5, 4)))
    for name in names:
        own = sorted((row for row in rows if row["contestant"] == name), key=lambda row: row["Mbit/s"])
        places = [row["Mbit/s"] for row in own]
        axes.fill_between(
            places, [row["lowest"] for row in own], [row["highest"] for row in own], color=colour_of[name], alpha=0.15
        )
        axes.plot(places, [row["speed-up"] for row in own], "o-", color=colour_of[name], label=label(name))
    bandwidths = sorted({row["Mbit/s"] for row in rows})
    axes.set_xscale("log")
    axes.set_xticks(bandwidths, [f"{each:g}" for each in bandwidths])
    axes.xaxis.set_minor_locator(plt.NullLocator())
    axes.set(xlabel="Mbit/s", ylabel="times as fast as one node")
    axes.set_ylim(0, max([2.2, *(1.05 * row["highest"] for row in rows)]))
    axes.text(0.995, 2.02, "ideal", transform=axes.get_yaxis_transform(), ha="right", fontsize=8, color=QUIET)
    axes.text(0.995, 1.02, "one node", transform=axes.get_yaxis_transform(), ha="right", fontsize=8, color=INK)
    axes.grid(alpha=0.25)
    axes.legend(frameon=False, loc="lower right")
    _save(plt, figure, path)


def draw_predictions(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """Predicted over measured step times, and below how far they are off; with the band in which they should be."""
    plt = _plot()
    names = list(dict.fromkeys(row["strategy"] for row in rows))
    markers = dict(zip(dict.fromkeys(row["workload"] for row in rows), "o^sD", strict=False))
    figure, (above, below) = plt.subplots(
        2, 1, figsize=(6.8, 7.0), layout="constrained", sharex=True, height_ratios=[2.2, 1]
    )
    times = [row[each] for row in rows for each in ("measured, ms", "predicted, ms")]
    ends = [0.8 * min(times), 1.25 * max(times)]
    above.plot(ends, ends, color=INK, linewidth=1)
    above.fill_between(ends, [0.85 * end for end in ends], [1.15 * end for end in ends], color=QUIET, alpha=0.15, lw=0)
    below.axhline(0, color=INK, linewidth=1)
    below.axhspan(-15, 15, color=QUIET, alpha=0.15, lw=0)
    palette = (*OURS, "#e09f3e", "#777777", "#333333", "#9c6644")
    for row in rows:
        colour, marker = palette[names.index(row["strategy"]) % len(palette)], markers[row["workload"]]
        above.plot(row["measured, ms"], row["predicted, ms"], marker, ms=5, color=colour, alpha=0.8)
        below.plot(row["measured, ms"], 100 * row["error"], marker, ms=5, color=colour, alpha=0.8)
    above.set(xscale="log", yscale="log", xlim=ends, ylim=ends, ylabel="predicted, ms a step")
    below.set(xlabel="measured, ms a step", ylabel="error, %")
    handles = [plt.Line2D([], [], marker="o", ls="", color=palette[i % len(palette)]) for i in range(len(names))]
    handles += [plt.Line2D([], [], marker=marker, ls="", color=INK) for marker in markers.values()]
    above.legend(handles, [*names, *markers], frameon=False, fontsize=8, loc="upper left")
    for axes in (above, below):
        axes.grid(alpha=0.25)
    _save(plt, figure, path)


def _save(plt: Any, figure: Any, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)
