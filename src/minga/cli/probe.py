"""`minga probe`: measure the links between nodes."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from minga.cli.execute import execute
from minga.cli.listen import listening_from
from minga.cli.options import (
    BandwidthOption,
    DelayOption,
    InterfaceOption,
    JsonOption,
    TlsOption,
    TokenFileOption,
    TransportOption,
)

__all__ = ["register"]


def register(application: typer.Typer) -> None:
    application.command("probe")(probe)


def probe(
    nodes: Annotated[
        int | None, typer.Option("--nodes", "-n", help="Nodes on this machine; default: 2, with --expect 1.")
    ] = None,
    bandwidth: BandwidthOption = None,
    delay: DelayOption = None,
    listen: Annotated[
        str | None, typer.Option("--listen", metavar="ADDRESS[:PORT]", help="Let other machines join (minga join).")
    ] = None,
    expect: Annotated[
        int | None, typer.Option("--expect", metavar="N", help="With --listen: nodes in all; --nodes are those here.")
    ] = None,
    interface: InterfaceOption = None,
    tls: TlsOption = None,
    token_file: TokenFileOption = None,
    transport: TransportOption = "tcp",
    out: Annotated[Path | None, typer.Option("--out", metavar="FILE", help="A cluster's file for minga plan.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Measure bandwidth, delay and what messages cost between nodes: on this machine, in a lab, or of joined machines.

    Examples:

      minga probe --nodes 3 --bandwidth 100mbit --delay 5ms

      minga probe --listen 10.0.0.1:29600 --expect 3 --nodes 1 --out cluster.toml
    """
    from minga.cli.options import check_writable, experiment_from
    from minga.comm.probing import Links
    from minga.measure.event_reader import events_of
    from minga.measure.events import Finished
    from minga.plan.probed import to_toml

    here = nodes if nodes is not None else 1 if listen is not None and expect is not None else 2
    if out is not None:
        check_writable(out)
    listening = listening_from(
        listen, interface=interface, expect=expect, here=here, tls=tls, token_file=token_file, quiet=as_json
    )
    with tempfile.TemporaryDirectory(prefix="minga-probe-") as folder:
        experiment = experiment_from(
            "digits",
            codec=None,
            settings=None,
            checkpoints=False,
            nodes=here if listening is None else expect,
            strategy="probe",
            steps=1,
            bandwidth=bandwidth,
            delay=delay,
            transport=transport if (here if listening is None else expect or 1) > 1 else None,
            runs=folder,
        )
        summary = execute(experiment, quiet=True, listening=listening)
        ended = events_of(Path(summary.run), Finished)
    links = Links.from_dict(next(event.notes["links"] for event in ended if "links" in event.notes))
    if out is not None:
        out.write_text(to_toml(links), encoding="utf-8")
    if as_json:
        print(json.dumps(links.to_dict()))
        return
    _show(links, out)


def _show(links: Any, out: Path | None) -> None:
    from minga.base.units import format_bandwidth

    console = Console()
    size = len(links.delay)
    table = Table("from", *(f"to h{rank + 1}" for rank in range(size)))
    for source in range(size):
        cells = []
        for target in range(size):
            rate, way = links.bandwidth[source][target], links.delay[source][target]
            known = f"{format_bandwidth(float(f'{8 * rate:.3g}'))}, {1000 * way:.3g} ms"
            cells.append("" if source == target else known if rate else "not measured")
        table.add_row(f"h{source + 1}", *cells)
    console.print(table)
    cost = 1e9 * links.stolen_seconds_per_byte
    message = f"{1e6 * links.message_seconds:.2g} us" if links.message_seconds else "less than its packet on the link"
    console.print(f"a message costs {message}, however short it is", highlight=False)
    console.print(
        f"a byte sent and one received take {cost:.2g} ns from a node that computes meanwhile", highlight=False
    )
    if out is not None:
        console.print(f"for minga plan --cluster: {out}", highlight=False, soft_wrap=True)
