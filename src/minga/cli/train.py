"""`minga train`: train a workload on some nodes with some strategy."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from minga.cli.execute import execute, print_result
from minga.cli.listen import ListenOptions
from minga.cli.options import ExperimentOptions, JsonOption, OptionalWorkloadArgument, experiment_options
from minga.errors import ConfigError

__all__ = ["train"]


def train(
    given: Annotated[ExperimentOptions, experiment_options()],
    listen: ListenOptions,
    workload: OptionalWorkloadArgument = None,
    resume: Annotated[
        Path | None, typer.Option(metavar="RUN", help="Go on with this run from its last checkpoint.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Train a workload on some nodes with some strategy.

    Examples:

      minga train digits --nodes 4 --strategy ring

      minga train digits --nodes 4 --bandwidth 10mbit --delay 5ms

      minga train my.py:workload --nodes 2 --strategy ps:mode=ssp,staleness=3 --epochs 5

      minga train experiment.toml --set training.seed=3 --json

      minga train digits --nodes 4 --strategy ring --heartbeat-timeout 3s

      minga train digits --listen 10.0.0.1:29600 --expect 4 --min-nodes 2

      minga train --resume runs/20260101-120000-digits-ring-4

      minga train digits --nodes 2 --start-from runs/20260101-120000-digits-ring-4
    """
    if resume is not None and workload is not None:
        raise ConfigError(f"--resume {resume} goes on with that run's own workload; leave {workload!r} out")
    if resume is not None and (start := given["start_from"]) is not None:
        raise ConfigError(f"--resume {resume} goes on with that run's own weights; leave --start-from {start} out")
    if resume is None and workload is None:
        raise ConfigError("say what to train: 'minga train digits', or 'minga train --resume RUN'")
    if resume is not None and not (resume / "experiment.toml").is_file():
        raise ConfigError(f"{resume} is no directory of a run: it has no experiment.toml")
    listening = listen.start(here=given["nodes"], quiet=as_json)
    experiment = given.experiment(
        str(resume / "experiment.toml") if resume is not None else str(workload),
        nodes=given["nodes"] if listening is None else listen.expect,
    )
    print_result(execute(experiment, quiet=as_json, resume=resume, listening=listening), as_json=as_json)
