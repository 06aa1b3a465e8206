"""`minga join`: take part in a run of another machine."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated

import typer

from minga.cli.execute import live_view, print_result
from minga.cli.listen import InterfaceOption, TlsOption, TokenFileOption
from minga.cli.options import DataOption, JsonOption, RunsOption
from minga.cli.output import say
from minga.errors import ConfigError

__all__ = ["join"]


def join(
    where: Annotated[str, typer.Argument(metavar="ADDRESS:PORT", help="Where the run listens, as it was printed.")],
    token: Annotated[
        str | None, typer.Option(help="The run's token; MINGA_TOKEN or --token-file keep it to themselves.")
    ] = None,
    token_file: TokenFileOption = None,
    data: DataOption = None,
    workload: Annotated[
        str | None, typer.Option(metavar="FILE.py", help="Where the workload's own file is here.")
    ] = None,
    name: Annotated[str | None, typer.Option(help="Of this node; default: node-N.")] = None,
    interface: InterfaceOption = None,
    tls: TlsOption = None,
    runs: RunsOption = None,
    wait: Annotated[str, typer.Option(metavar="TIME", help="How long to try until somebody answers.")] = "10s",
    as_json: JsonOption = False,
) -> None:
    """Take part with this machine in a run that was started elsewhere with --listen; also while it trains.

    What is trained, and how, comes from there. Workload and data are this machine's own and must be the same. Ctrl-C or
    SIGTERM: this node leaves, and the others go on.

    Exit codes: 0 the run is done, 1 it failed or refused this node, 2 something is missing here, 130 and 143 left.

    Example:

      minga join 10.0.0.1:29600 --token-file token --data /data
    """
    from minga.engines.joining import Invitation, join_run
    from minga.launch.listening import TOKEN_VARIABLE, find_token, parse_address

    address, port = parse_address(where)
    if not address or port is None:
        raise ConfigError(f"{where!r} should be ADDRESS:PORT, as 'minga train --listen' has printed it")
    found = find_token(token, token_file)
    if found is None:
        raise ConfigError(f"a run lets nobody in without its token; give --token, --token-file or {TOKEN_VARIABLE}")
    invitation = Invitation(
        address=address,
        port=port,
        token=found,
        data=data,
        workload=workload,
        name=name,
        interface=interface,
        tls=tls,
        runs=runs or "runs",
        wait_seconds=_seconds(wait),
    )

    def when_known(run: Path, id: str) -> None:
        if not as_json:
            say(f"{id} takes part; its events and logs are in {run}", markup=False, stderr=True)

    with live_view(quiet=as_json, when_interrupted="left the run; the others go on") as view:
        summary = join_run(invitation, view, when_known=when_known)
    print_result(summary, as_json=as_json, without="the run was over before this node could train")


def _seconds(wait: str) -> float:
    from minga.base.units import parse_duration

    seconds: float = parse_duration(wait)
    if not 0 <= seconds < math.inf:
        raise ConfigError(f"--wait should be a time of 0s or more, such as 10s, not {wait}")
    return seconds
