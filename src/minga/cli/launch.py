"""`minga launch`: a script with a training loop of its own, on several nodes."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from minga.cli.execute import print_summary
from minga.cli.options import (
    BandwidthOption,
    CodecOption,
    CpuOption,
    DelayOption,
    JsonOption,
    RunsOption,
    SetOption,
    StrategyOption,
    experiment_from,
)

__all__ = ["register"]


def register(application: typer.Typer) -> None:
    application.command("launch", no_args_is_help=True, context_settings={"allow_interspersed_args": False})(launch)


def launch(
    script: Annotated[Path, typer.Argument(help="A Python script that calls minga.join().")],
    arguments: Annotated[list[str] | None, typer.Argument(help="Arguments of the script itself.")] = None,
    nodes: Annotated[int, typer.Option("--nodes", "-n", help="Workers; servers come on top.")] = 2,
    strategy: StrategyOption = None,
    codec: CodecOption = None,
    bandwidth: BandwidthOption = None,
    delay: DelayOption = None,
    cpu: CpuOption = None,
    runs: RunsOption = None,
    settings: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run a script with a training loop of its own on several nodes. Options go before the script.

    Rank 0's output is shown, that of the others goes to the logs of the run.

    Example:

      minga launch --nodes 4 --strategy ring examples/own_loop.py --epochs 3
    """
    from minga.engines.scripts import run_script

    experiment = experiment_from(
        str(script),
        nodes=nodes,
        strategy=strategy,
        codec=codec,
        bandwidth=bandwidth,
        delay=delay,
        cpu=cpu,
        runs=runs,
        settings=settings,
    )
    summary = run_script(experiment, script, arguments or [], show=not as_json)
    if as_json:
        print(json.dumps(summary.to_dict() if summary else {}))
    elif summary:
        print_summary(summary)
    else:
        print("the script never called run.prepare(), so there is nothing to report", file=sys.stderr)
