"""Running an experiment from the command line: the view while it runs, what is printed when it is done."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from rich.console import Console

if TYPE_CHECKING:
    from pathlib import Path

    from minga.launch.listening import Listening
    from minga.report.summary import Summary
    from minga.runs.experiment import Experiment

__all__ = ["execute", "print_result", "print_summary"]


def execute(
    experiment: Experiment, *, quiet: bool, resume: Path | None = None, listening: Listening | None = None
) -> Summary:
    """Run with a live view on standard error (standard output is for results); `resume`: go on with this run."""
    from minga.engines.local import go_on, run
    from minga.report.live import WaitingView, view_for

    console = Console(stderr=True)
    try:
        with WaitingView(console) if quiet and not console.is_terminal else view_for(console) as view:
            if resume is not None:
                return go_on(resume, experiment, view, listening=listening)
            return run(experiment, view, listening=listening)
    except KeyboardInterrupt:
        console.print("interrupted; all processes of the run are ended")
        raise


def print_result(summary: Summary, *, as_json: bool) -> None:
    """The result, for machines or for people."""
    if as_json:
        print(json.dumps(summary.to_dict()))
    else:
        print_summary(summary)


def print_summary(summary: Summary) -> None:
    """The result for people."""
    from minga.measure.event_reader import malformed_note
    from minga.report.numbers import duration, shown_metric, size
    from minga.report.terminal_tables import rank_table

    console = Console()
    quality = "   ".join(
        f"{name} [bold]{shown_metric(name, value) if name != 'loss' else f'{value:.4f}'}[/]"
        for name, value in summary.metrics.items()
    )
    nodes = f"{summary.nodes} node{'s' if summary.nodes > 1 else ''}"
    simulated = ", simulated" if summary.simulated else ""
    what = f"[bold]{summary.workload}[/], {nodes}, {summary.strategy}{simulated}"
    console.print(f"{what}: {quality}" if quality else what, soft_wrap=True)
    console.print(
        f"{summary.steps:,} steps in {duration(summary.seconds)}, {summary.samples_per_second:,.0f} samples/s, "
        f"{size(summary.bytes_sent)} sent",
        highlight=False,
        soft_wrap=True,
    )
    if summary.energy is not None:
        product = summary.energy.describe_delay_product(summary.seconds)
        console.print(f"energy {summary.energy}, energy-delay product {product}", highlight=False, soft_wrap=True)
    if network := _network(summary):
        console.print(f"network: {network}", highlight=False, soft_wrap=True)
    if summary.changes:
        count = f"{len(summary.changes)} changes of membership, the last: " if len(summary.changes) > 1 else ""
        console.print(f"{count}{summary.changes[-1]}", highlight=False, markup=False, soft_wrap=True)
    for link in summary.links_off:
        console.print(f"a link is off: {link}", style="yellow", highlight=False, soft_wrap=True)
    if note := malformed_note(summary.malformed):
        console.print(note, style="yellow", highlight=False, soft_wrap=True)
    console.print(rank_table(summary.ranks))
    if summary.staleness and set(summary.staleness) != {"0"}:
        ahead = ", ".join(f"{steps}: {count:,}" for steps, count in summary.staleness.items())
        console.print(f"steps ahead of the slowest worker (how often): {ahead}", highlight=False, soft_wrap=True)
    if summary.switched_after:
        console.print(f"switched from all-reduce to servers after step {summary.switched_after:,}", highlight=False)
    for plan in summary.planned:
        console.print(f"planned after step {plan['step']:,}: {plan['strategy']}", highlight=False)
    console.print(f"everything is in {summary.run}", highlight=False, soft_wrap=True)


def _network(summary: Summary) -> str:
    """What was asked of the lab's network and what it did."""
    from minga.base.units import format_bandwidth, format_duration

    parts = []
    if summary.bandwidth_measured is not None:
        asked = f"{format_bandwidth(summary.bandwidth_asked)} asked" if summary.bandwidth_asked else "no limit asked"
        parts.append(f"bandwidth {asked}, {format_bandwidth(float(f'{summary.bandwidth_measured:.3g}'))} measured")
    if summary.delay_measured is not None:
        asked = format_duration(summary.delay_asked or 0.0)
        parts.append(f"delay {asked} asked, {1000 * summary.delay_measured:.3g}ms measured")
    return "; ".join(parts)
