"""Where the time goes: stacked phases, with waiting apart from own work."""

from __future__ import annotations

from collections.abc import Sequence

from minga.report.dataset.groups import Dataset, Phases, RunGroup
from minga.report.dataset.stragglers import find_straggler
from minga.report.figures.style import Drawing, fitted, legend_below, new_figure, to_svg
from minga.report.numbers import duration

__all__ = ["PHASES", "mean_phases", "phases"]

PHASES = {
    "data": ("data", "#56B4E9"),
    "forward": ("forward", "#0072B2"),
    "backward": ("backward", "#003F63"),
    "update": ("update", "#009E73"),
    "slowdown": ("held back", "#CC79A7"),
    "serve": ("serving", "#7A4F9A"),
    "exchange": ("exchange, own work", "#E69F00"),
    "other": ("other", "#AAAAAA"),
    "wait": ("waiting", "#FFFFFF"),
}
"""In the order of the bars, what they are called, their colors. Waiting comes last and is hatched, not filled."""

_BARS = 40


def phases(dataset: Dataset) -> list[Drawing]:
    """One bar for each group, then one for each rank of the groups with several."""
    drawings = []
    if len(dataset.groups) > 1:
        bars = [(group.label, mean_phases(group)) for group in dataset.groups][:_BARS]
        caption = "Mean over the workers of each group; at the right the time of training in all. "
        drawings.append(_draw("phases", "Where the time of each group goes", caption + _WAITING, [("", bars)]))
    several = [group for group in dataset.groups if len(group.phases) > 1]
    shown = _telling(several) if sum(len(group.phases) for group in several) > _BARS else several
    if not several:
        if drawings:
            return drawings
        shown = dataset.groups
    blocks = [(group.label, [(rank.name + _role(rank), rank) for rank in group.phases]) for group in shown]
    caption = "One bar for each rank. In lock step, the one that waits least holds up the others. " + _WAITING
    if len(shown) < len(several):
        caption += f" {len(shown)} of {len(several)} groups with several ranks are drawn: those with a straggler first."
    drawings.append(_draw("ranks", "Where the time of each rank goes", caption, blocks))
    return drawings


_WAITING = (
    "Hatched is waiting: for other ranks, and for the network to carry what they send. Medians of the repetitions."
)


def _role(rank: Phases) -> str:
    return f" ({rank.role})" if rank.role != "worker" else ""


def _telling(groups: Sequence[RunGroup]) -> list[RunGroup]:
    """As many groups as there is room for: those with a straggler, then those that wait most."""
    ranked = sorted(groups, key=lambda group: (find_straggler(group) is None, -group.share("wait")))
    chosen, bars = [], 0
    for group in ranked:
        if bars + len(group.phases) <= _BARS:
            chosen.append(group)
            bars += len(group.phases)
    return [group for group in groups if group in (chosen or ranked[:1])]


def mean_phases(group: RunGroup) -> Phases:
    """The workers' mean."""
    names = dict.fromkeys(name for rank in group.workers for name in rank.seconds)
    means = {name: sum(rank.seconds.get(name, 0.0) for rank in group.workers) / len(group.workers) for name in names}
    return Phases(group.label, "worker", means)


def _draw(name: str, title: str, caption: str, blocks: list[tuple[str, list[tuple[str, Phases]]]]) -> Drawing:
    bars = sum(len(block) for _, block in blocks)
    headings = sum(bool(heading) and len(blocks) > 1 for heading, _ in blocks)
    rows = bars + 1.15 * headings
    figure, ((axes,),) = new_figure(height=0.95 + 0.215 * max(rows, 2), extra=0.3)
    place, ticks = 0.0, []
    handles: dict[str, object] = {}
    for heading, block in blocks:
        if heading and len(blocks) > 1:
            axes.text(0, place + 0.15, fitted(heading, 110), va="center", ha="left", fontsize=8.5, fontweight="bold")
            place += 1
        for label, rank in block:
            left = 0.0
            for phase in [*PHASES, *sorted(set(rank.seconds) - set(PHASES))]:
                share = 100 * rank.seconds.get(phase, 0.0) / rank.total if rank.total else 0.0
                words, color = PHASES.get(phase, (phase, "#D9D9D9"))
                if share < 0.02:
                    continue
                wait = phase == "wait"
                handle = axes.barh(
                    place,
                    share,
                    left=left,
                    height=0.72,
                    color=color,
                    edgecolor="#8A8A8A" if wait else "#FFFFFF",
                    linewidth=0.5 if wait else 0.3,
                    hatch="////" if wait else None,
                )
                handles.setdefault(words, handle)
                left += share
            axes.annotate(
                duration(rank.total), (100, place), (5, 0), textcoords="offset points", va="center", fontsize=8
            )
            ticks.append((place, label))
            place += 1
        place += 0.15 if headings else 0
    axes.set_yticks([tick for tick, _ in ticks], [fitted(label) for _, label in ticks])
    axes.set_ylim(place - 0.4, -0.6)
    axes.set_xlim(0, 107)
    axes.set_xticks(range(0, 101, 20))
    axes.set_xlabel("share of training time [%]")
    axes.grid(visible=False, axis="y")
    known = [words for words, _ in PHASES.values()]
    order = [*known, *sorted(set(handles) - set(known))]
    legend_below(figure, {words: handles[words] for words in order if words in handles})
    return Drawing(name, title, caption, to_svg(figure, name))
