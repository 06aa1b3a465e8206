"""Processor, memory, network and power of each rank over time; energy in all."""

from __future__ import annotations

import dataclasses
import statistics
import textwrap
from collections.abc import Callable, Sequence

from minga.measure.events import Sampled
from minga.report.dataset.groups import Dataset, RunGroup
from minga.report.dataset.reading import Run
from minga.report.dataset.statistics import Spread
from minga.report.figures.intervals import Panel, draw_intervals
from minga.report.figures.style import COLORS, Drawing, fitted, legend_below, new_figure, to_svg
from minga.report.numbers import estimate_mark

__all__ = ["energy", "join_short", "power", "resources"]

_GROUPS = 4


def resources(dataset: Dataset) -> list[Drawing]:
    groups = _examples(dataset)
    if not groups:
        return []
    rows: list[tuple[str, Callable[[Sampled], float | None]]] = [
        ("processor [cores]", lambda sample: sample.cpu_seconds / sample.seconds),
        ("memory [MB]", lambda sample: sample.memory_bytes / 1e6),
        ("sent [Mbit/s]", lambda sample: _rate(sample.bytes_sent, sample.seconds)),
        ("received [Mbit/s]", lambda sample: _rate(sample.bytes_received, sample.seconds)),
    ]
    rows = [row for row in rows if any(row[1](sample) is not None for group in groups for sample in _all(group.middle))]
    caption = "The repetition with the median time of each group; time includes evaluations. "
    if any("sent" in name for name, _ in rows):
        caption += "Network: what the interfaces of the rank's host counted, headers included. "
    return [_series("resources", "Processor, memory and network over time", caption, groups, rows, dataset)]


def power(dataset: Dataset) -> list[Drawing]:
    groups = [group for group in _examples(dataset) if any(sample.watts for sample in _all(group.middle))]
    if not groups:
        return []
    estimated = any(sample.estimated for group in groups for sample in _all(group.middle))
    mark = estimate_mark(estimated)
    rows: list[tuple[str, Callable[[Sampled], float | None]]] = [(f"power{mark} [W]", lambda sample: sample.watts)]
    caption = "Of each rank's host. "
    if estimated:
        caption += "Estimated from the processor time that ranks used, not read from a counter. "
    return [_series("power", f"Power over time{mark}", caption, groups, rows, dataset)]


def energy(dataset: Dataset) -> list[Drawing]:
    groups = [group for group in dataset.groups if group.energy is not None]
    if len(groups) < 2:
        return []
    known = [each for group in groups if (each := group.energy) is not None]
    mark = estimate_mark(any(each.estimated for each in known))
    panels = [Panel(f"energy{mark} [J]", [each.joules for each in known])]
    relative = [dataset.relative_energy(group) for group in groups]
    title = f"Energy{mark}"
    compared = any(dataset.baseline(group) is not None for group in groups) and any(relative)
    if compared:
        products = [Spread.of([pair[1]]) if pair else None for pair in relative]
        panels.append(Panel(f"energy x time, one node = 1{mark}", products, reference=1.0))
        title = f"Energy and energy-delay product{mark}"
    sources = sorted({each.source for each in known})
    caption = f"Of all ranks' hosts while they trained. Source: {', '.join(sources)}."
    caption += " The dotted line is one node." if compared else ""
    return [draw_intervals("energy", title, caption, groups, panels, dataset.node_counts)]


def _series(
    name: str,
    title: str,
    caption: str,
    groups: Sequence[RunGroup],
    rows: Sequence[tuple[str, Callable[[Sampled], float | None]]],
    dataset: Dataset,
) -> Drawing:
    height = 1.75 if len(rows) > 1 else 2.3
    figure, grid = new_figure(len(rows), len(groups), height=height, extra=0.5, sharex="col", sharey="row")
    handles: dict[str, object] = {}
    for column, group in enumerate(groups):
        run = group.middle
        for index, (label, value) in enumerate(rows):
            axes = grid[index][column]
            for rank, samples in sorted(run.samples.items()):
                drawn = join_short(samples)
                points = [(sample.time, amount) for sample in drawn if (amount := value(sample)) is not None]
                color = COLORS[rank % len(COLORS)]
                dashes = ("-", (0, (5, 1.5)), (0, (1.5, 1.2)), "-.")[rank % 4]
                (handle,) = axes.plot(
                    [end for end, _ in points], [amount for _, amount in points], color=color, linestyle=dashes
                )
                handles.setdefault(run.name_of(rank), handle)
            axes.set_xlim(left=0)
            if column == 0:
                axes.set_ylabel(label)
        if name == "power" and run.power:
            for device in sorted({device for _, watts in run.power for device in watts}):
                times = [time for time, watts in run.power if device in watts]
                (handle,) = grid[0][column].plot(
                    times, [watts[device] for _, watts in run.power if device in watts], color="#000000", linewidth=1
                )
                handles.setdefault(f"{device}, whole machine (counter)", handle)
        grid[0][column].set_title("\n".join(textwrap.wrap(fitted(group.label, 96), 34)[:3]), fontsize=8.5)
        grid[-1][column].set_xlabel("time [s]")
    for row in grid:  # after all is drawn: a limit that is set stays, also for what comes later
        highest = max(axes.dataLim.y1 for axes in row)
        row[0].set_ylim(0, 1.1 * highest if highest > 0 else 1.0)
    figure.align_ylabels([row[0] for row in grid])
    legend_below(figure, handles)
    with_samples = sum(any(run.samples for run in group.runs) for group in dataset.groups)
    if with_samples > len(groups):
        caption += f"{len(groups)} of {with_samples} groups are drawn: one node, the fastest, the slowest, the largest."
    return Drawing(name, title, caption, to_svg(figure, name))


def _examples(dataset: Dataset) -> list[RunGroup]:
    """All groups, or of many the most telling: one node, the fastest, the slowest, the largest."""
    sampled = [group for group in dataset.groups if group.middle.samples]
    if len(sampled) <= _GROUPS:
        return sampled
    speed = sorted(sampled, key=lambda group: group.samples_per_second.median)
    several = [group for group in speed if group.nodes > 1] or speed
    alone = next((group for group in sampled if group.nodes == 1), several[len(several) // 2])
    largest = max(several, key=lambda group: (group.nodes, len(group.phases)))
    wanted = (alone, several[0], several[-1], largest)
    return [group for group in sampled if any(group is each for each in wanted)]


def _all(run: Run) -> list[Sampled]:
    return [sample for samples in run.samples.values() for sample in samples]


def _rate(nbytes: float | None, seconds: float) -> float | None:
    return None if nbytes is None or seconds <= 0 else 8 * nbytes / seconds / 1e6


def join_short(samples: Sequence[Sampled]) -> list[Sampled]:
    """Samples that an evaluation has cut short, joined to the next: a few milliseconds look like more than they are."""
    usual = statistics.median([sample.seconds for sample in samples]) if samples else 0.0
    joined: list[Sampled] = []
    kept: Sampled | None = None
    for sample in samples:
        kept = sample if kept is None else _together(kept, sample)
        if kept.seconds >= 0.5 * usual:
            joined.append(kept)
            kept = None
    if kept is not None:
        joined = [*joined[:-1], _together(joined[-1], kept)] if joined else [kept]
    return joined


def _together(first: Sampled, second: Sampled) -> Sampled:
    def total(one: int | None, other: int | None) -> int | None:
        return None if one is None or other is None else one + other

    seconds = first.seconds + second.seconds
    return dataclasses.replace(
        second,
        seconds=seconds,
        cpu_seconds=first.cpu_seconds + second.cpu_seconds,
        bytes_sent=total(first.bytes_sent, second.bytes_sent),
        bytes_received=total(first.bytes_received, second.bytes_received),
        watts=(first.watts * first.seconds + second.watts * second.seconds) / seconds,
        estimated=first.estimated or second.estimated,
    )
