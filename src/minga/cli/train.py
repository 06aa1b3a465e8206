"""`minga train`: train a workload on some nodes with some strategy."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from minga.cli.execute import execute, print_summary
from minga.cli.options import (
    BandwidthOption,
    BatchOption,
    CodecOption,
    CpuOption,
    DataOption,
    DelayOption,
    EpochsOption,
    JsonOption,
    NodesOption,
    RunsOption,
    SeedOption,
    SetOption,
    StepsOption,
    StrategyOption,
    TotalBatchOption,
    experiment_from,
)

__all__ = ["register"]


def register(application: typer.Typer) -> None:
    application.command("train", no_args_is_help=True)(train)


def train(
    workload: Annotated[
        str,
        typer.Argument(help="A built-in workload (digits, mnist, ...), file.py:name, or an experiment.toml."),
    ],
    nodes: NodesOption = None,
    strategy: StrategyOption = None,
    codec: CodecOption = None,
    epochs: EpochsOption = None,
    steps: StepsOption = None,
    batch: BatchOption = None,
    total_batch: TotalBatchOption = None,
    bandwidth: BandwidthOption = None,
    delay: DelayOption = None,
    cpu: CpuOption = None,
    seed: SeedOption = None,
    data: DataOption = None,
    runs: RunsOption = None,
    settings: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Train a workload on some nodes with some strategy.

    Examples:

      minga train digits --nodes 4 --strategy ring

      minga train digits --nodes 4 --bandwidth 10mbit --delay 5ms

      minga train my.py:workload --nodes 2 --strategy ps:mode=ssp,staleness=3 --epochs 5

      minga train experiment.toml --set training.seed=3 --json
    """
    experiment = experiment_from(
        workload,
        nodes=nodes,
        strategy=strategy,
        codec=codec,
        epochs=epochs,
        steps=steps,
        batch=batch,
        total_batch=total_batch,
        bandwidth=bandwidth,
        delay=delay,
        cpu=cpu,
        seed=seed,
        data=data,
        runs=runs,
        settings=settings,
    )
    summary = execute(experiment, quiet=as_json)
    if as_json:
        print(json.dumps(summary.to_dict()))
    else:
        print_summary(summary)
