"""`minga doctor`: what this machine offers for Minga, what is missing, and what to do about it."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from minga.cli.options import JsonOption
from minga.cli.output import present

if TYPE_CHECKING:
    from minga.measure.machine.examination import MachineExamination

__all__ = ["doctor"]

_TOPICS = {
    "versions": "Versions",
    "processor": "Processor and memory",
    "devices": "GPUs and messages between ranks",
    "network": "Network",
    "lab": "Lab: hosts with shaped links, on this machine",
    "energy": "Energy counters",
    "data": "Data and disk",
}
_COLORS = {"ok": "green", "limited": "yellow", "missing": "yellow", "unknown": "cyan"}


def doctor(as_json: JsonOption = False) -> None:
    """Tell what this machine offers for Minga, what is missing, and what to do about it.

    Exit code: 0 when a local run works (torch with gloo, loopback), else 1; everything more is optional.

    Example:

      minga doctor --json
    """
    from minga._version import __version__
    from minga.measure.machine.examination import examine
    from minga.runs.experiment import Cluster

    examination = examine(minga_version=__version__, threads_per_rank=Cluster().threads)
    present(examination.to_dict(), lambda: _print(examination), as_json=as_json)
    if not examination.local_run_works:
        raise typer.Exit(1)


def _print(examination: MachineExamination) -> None:
    console = Console(highlight=False)
    # A table for each topic, so that its title is not squeezed into a column; the same widths, so that they align.
    width = max(len(finding.name) for finding in examination.findings)
    for topic, findings in groupby(examination.findings, key=lambda finding: finding.topic):
        table = Table(
            box=None, pad_edge=False, show_header=False, title=_TOPICS[topic], title_justify="left", title_style="bold"
        )
        table.add_column("state", no_wrap=True, min_width=len("unknown"))
        table.add_column("name", no_wrap=True, min_width=width)
        table.add_column("found", overflow="fold")
        for finding in findings:
            color = "red" if finding.needed and finding.state != "ok" else _COLORS[finding.state]
            table.add_row(Text(finding.state, style=color), Text(finding.name), Text(finding.found))
            if finding.remedy:
                table.add_row("", "", Text(f"remedy: {finding.remedy}", style="dim"))
        console.print(table)
        console.print()
    console.print(", ".join(f"{count} {state}" for state, count in examination.counts.items()))
    broken = [finding.name for finding in examination.findings if finding.needed and finding.state != "ok"]
    if broken:
        console.print(f"A local run does not work yet: see {', '.join(broken)}.", style="bold red")
    else:
        console.print("A local run works: [bold]minga train digits --nodes 2[/]")
