"""`minga compare`: the same workload with several strategies, one after the other, in one table."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from minga.cli.execute import execute
from minga.cli.options import (
    BandwidthOption,
    BatchOption,
    CpuOption,
    DataOption,
    DelayOption,
    EpochsOption,
    JsonOption,
    RunsOption,
    SeedOption,
    SetOption,
    StepsOption,
    TotalBatchOption,
    experiment_from,
)

if TYPE_CHECKING:
    from minga.runs.experiment import Experiment

__all__ = ["register"]


def register(application: typer.Typer) -> None:
    application.command("compare", no_args_is_help=True)(compare)


def compare(
    workload: Annotated[str, typer.Argument(help="As for train.")],
    strategy: Annotated[
        list[str], typer.Option("--strategy", "-s", metavar="SPEC", help="Repeat it; 'single' runs on one node.")
    ],
    nodes: Annotated[int, typer.Option("--nodes", "-n", help="Workers of the distributed runs.")] = 2,
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
    """Train the same workload with several strategies, one after the other, and compare them.

    Example:

      minga compare digits --nodes 2 --strategy single --strategy ring --strategy ps:mode=async
    """
    from minga.report.terminal_tables import comparison_table

    def experiment(spec: str) -> Experiment:
        return experiment_from(
            workload,
            nodes=1 if spec == "single" else nodes,
            strategy=spec,
            codec=None,
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
            alone=spec == "single",
        )

    experiments = [experiment(spec) for spec in strategy]  # all are checked before the first one runs
    summaries = [execute(each, quiet=as_json) for each in experiments]
    if as_json:
        print(json.dumps([summary.to_dict() for summary in summaries]))
    else:
        Console().print(comparison_table(summaries))
