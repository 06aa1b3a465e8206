"""`minga launch`: a script with a training loop of its own, on several nodes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from minga.cli.execute import print_result
from minga.cli.options import ExperimentOptions, JsonOption, experiment_options

__all__ = ["launch"]


def launch(
    script: Annotated[Path, typer.Argument(help="A Python script that calls minga.join().")],
    given: Annotated[
        ExperimentOptions, experiment_options("nodes", "strategy", "codec", "bandwidth", "delay", "cpu", "runs")
    ],
    arguments: Annotated[list[str] | None, typer.Argument(help="Arguments of the script itself.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Run a script with a training loop of its own on several nodes. Options go before the script.

    Rank 0's output is shown, that of the others goes to the logs of the run.

    Example:

      minga launch --nodes 4 --strategy ring examples/own_loop.py --epochs 3
    """
    from minga.engines.scripts import run_script

    experiment = given.experiment(str(script), nodes=given["nodes"] or 2)
    summary = run_script(experiment, script, arguments or [], show=not as_json)
    without = "the script never called run.prepare(), so there is nothing to report"
    print_result(summary, as_json=as_json, without=without)
