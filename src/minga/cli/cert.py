"""`minga cert`: certificates for runs over networks that one does not trust."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from minga.cli.options import JsonOption
from minga.cli.output import present

__all__ = ["cert"]


def cert(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Where authority and certificates are kept.")],
    addresses: Annotated[
        list[str],
        typer.Option(
            "--for", metavar="ADDRESS", help="IP address or name of a node, as others connect to it. Repeatable."
        ),
    ],
    days: Annotated[int, typer.Option(help="How long the nodes' certificates are good for.")] = 365,
    as_json: JsonOption = False,
) -> None:
    """Make a small certificate authority and a certificate for each node; called again, it adds nodes.

    Copy DIR/ADDRESS to the node with that address, and nothing else: DIR/authority.key can make certificates.

    Example:

      minga cert certificates --for 10.0.0.1 --for 10.0.0.2
    """
    from minga.net.certificates import make_certificates

    made = make_certificates(directory, addresses, days=days)
    lines = [f"{path}  [dim]copy this directory to the node {path.name}[/]" for path in made]
    lines += [f"[dim]keep {directory / 'authority.key'} to yourself: it can make certificates[/]"]
    nodes = {path.name: str(path) for path in made}
    present({"directory": str(directory), "nodes": nodes, "days": days}, "\n".join(lines), as_json=as_json)
