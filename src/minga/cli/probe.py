"""`minga probe`: measure the links between nodes."""

from __future__ import annotations

import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from minga.cli.execute import execute
from minga.cli.listen import ListenOptions
from minga.cli.options import ExperimentOptions, JsonOption, experiment_options
from minga.cli.output import check_writable, present, say

__all__ = ["probe"]


def probe(
    given: Annotated[ExperimentOptions, experiment_options("bandwidth", "delay", "transport")],
    listen: ListenOptions,
    nodes: Annotated[
        int | None, typer.Option("--nodes", "-n", help="Nodes on this machine; default: 2, with --expect 1.")
    ] = None,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="A cluster's file for minga plan.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Measure bandwidth, delay and what messages cost between nodes: on this machine, in a lab, or of joined machines.

    Examples:

      minga probe --nodes 3 --bandwidth 100mbit --delay 5ms

      minga probe --listen 10.0.0.1:29600 --expect 3 --nodes 1 --out cluster.toml
    """
    from minga.comm.probing import Links
    from minga.measure.event_reader import events_of
    from minga.measure.events import Finished
    from minga.plan.cluster import to_toml

    here = nodes if nodes is not None else 1 if listen.listen is not None and listen.expect is not None else 2
    if out is not None:
        check_writable(out)
    listening = listen.start(here=here, quiet=as_json)
    in_all = here if listening is None else listen.expect
    with tempfile.TemporaryDirectory(prefix="minga-probe-") as folder:
        experiment = given.experiment(
            "digits",
            nodes=in_all,
            strategy="probe",
            steps=1,
            transport=(given["transport"] or "tcp") if (in_all or 1) > 1 else None,
            checkpoints=False,
            runs=folder,
        )
        summary = execute(experiment, quiet=True, listening=listening)
        ended = events_of(Path(summary.run), Finished)
    links = Links.from_value(next(event.notes["links"] for event in ended if "links" in event.notes))
    if out is not None:
        out.write_text(to_toml(links), encoding="utf-8")
    present(asdict(links), lambda: _print(links, out), as_json=as_json)


def _print(links: Any, out: Path | None) -> None:
    from minga.base.units import format_bandwidth

    size = len(links.delay)
    table = Table("from", *(f"to h{rank + 1}" for rank in range(size)))
    for source in range(size):
        cells = []
        for target in range(size):
            rate, way = links.bandwidth[source][target], links.delay[source][target]
            known = f"{format_bandwidth(float(f'{8 * rate:.3g}'))}, {1000 * way:.3g} ms"
            cells.append("" if source == target else known if rate else "not measured")
        table.add_row(f"h{source + 1}", *cells)
    Console().print(table)
    cost = 1e9 * links.stolen_seconds_per_byte
    message = f"{1e6 * links.message_seconds:.2g} us" if links.message_seconds else "less than its packet on the link"
    say(f"a message costs {message}, however short it is")
    say(f"a byte sent and one received take {cost:.2g} ns from a node that computes meanwhile")
    if out is not None:
        say(f"for minga plan --cluster: {out}")
