"""Running an experiment from the command line: the view while it runs, what is printed when it is done."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.console import Console

from minga.cli.output import present, say

if TYPE_CHECKING:
    from pathlib import Path

    from minga.launch.listening import Listening
    from minga.report.live import View
    from minga.report.summary import Summary
    from minga.runs.experiment import Experiment

__all__ = ["execute", "live_view", "print_result", "print_summary"]


def execute(
    experiment: Experiment, *, quiet: bool, resume: Path | None = None, listening: Listening | None = None
) -> Summary:
    """Run with a live view; `resume`: go on with this run."""
    from minga.engines.local import go_on, run

    with live_view(quiet=quiet, when_interrupted="interrupted; all processes of the run are ended") as view:
        if resume is not None:
            return go_on(resume, experiment, view, listening=listening)
        return run(experiment, view, listening=listening)


@contextlib.contextmanager
def live_view(*, quiet: bool, when_interrupted: str) -> Iterator[View]:
    """On standard error, since standard output is for results. `quiet`: outside of a terminal, only what it waits for.

    `when_interrupted`: what is said after Ctrl-C.
    """
    from minga.report.live import WaitingView, view_for

    console = Console(stderr=True)
    try:
        with WaitingView(console) if quiet and not console.is_terminal else view_for(console) as view:
            yield view
    except KeyboardInterrupt:
        say(when_interrupted, stderr=True)
        raise


def print_result(summary: Summary | None, *, as_json: bool, without: str = "") -> None:
    """The result, for machines or for people; `without`: what people are told where there is none."""
    if summary is None:
        present({}, lambda: say(without, stderr=True), as_json=as_json)
    else:
        present(summary.to_dict(), lambda: print_summary(summary), as_json=as_json)


def print_summary(summary: Summary) -> None:
    """The result for people."""
    from minga.measure.event_reader import malformed_note
    from minga.report.numbers import duration, shown_metric, size
    from minga.report.terminal_tables import rank_table

    quality = "   ".join(
        f"{name} [bold]{shown_metric(name, value) if name != 'loss' else f'{value:.4f}'}[/]"
        for name, value in summary.metrics.items()
    )
    nodes = f"{summary.nodes} node{'s' if summary.nodes > 1 else ''}"
    simulated = ", simulated" if summary.simulated else ""
    what = f"[bold]{summary.workload}[/], {nodes}, {summary.strategy}{simulated}"
    say(f"{what}: {quality}" if quality else what)
    say(
        f"{summary.steps:,} steps in {duration(summary.seconds)}, {summary.samples_per_second:,.0f} samples/s, "
        f"{size(summary.bytes_sent)} sent"
    )
    if summary.energy is not None:
        product = summary.energy.describe_delay_product(summary.seconds)
        say(f"energy {summary.energy}, energy-delay product {product}")
    if network := _network(summary):
        say(f"network: {network}")
    if summary.changes:
        count = f"{len(summary.changes)} changes of membership, the last: " if len(summary.changes) > 1 else ""
        say(f"{count}{summary.changes[-1]}", markup=False)
    for link in summary.links_off:
        say(f"a link is off: {link}", style="yellow")
    if note := malformed_note(summary.malformed):
        say(note, style="yellow")
    Console().print(rank_table(summary.ranks))
    if summary.staleness and set(summary.staleness) != {"0"}:
        ahead = ", ".join(f"{steps}: {count:,}" for steps, count in summary.staleness.items())
        say(f"steps ahead of the slowest worker (how often): {ahead}")
    if summary.switched_after:
        say(f"switched from all-reduce to servers after step {summary.switched_after:,}")
    for plan in summary.planned:
        say(f"planned after step {plan['step']:,}: {plan['strategy']}")
    say(f"everything is in {summary.run}")


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
