"""`minga compare`: the same workload with several strategies, one after the other, in one table."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console

from minga.cli.execute import execute
from minga.cli.options import ExperimentOptions, JsonOption, WorkloadArgument, experiment_options
from minga.cli.output import present

__all__ = ["compare"]


def compare(
    workload: WorkloadArgument,
    strategy: Annotated[
        list[str], typer.Option("--strategy", "-s", metavar="SPEC", help="Repeat it; 'single' runs on one node.")
    ],
    given: Annotated[
        ExperimentOptions,
        experiment_options(
            "epochs", "steps", "batch", "total_batch", "seed", "bandwidth", "delay", "cpu", "data", "runs"
        ),
    ],
    nodes: Annotated[int, typer.Option("--nodes", "-n", help="Workers of the distributed runs.")] = 2,
    as_json: JsonOption = False,
) -> None:
    """Train the same workload with several strategies, one after the other, and compare them.

    Example:

      minga compare digits --nodes 2 --strategy single --strategy ring --strategy ps:mode=async
    """
    from minga.report.terminal_tables import comparison_table

    experiments = [  # all are checked before the first one runs
        given.experiment(workload, nodes=1 if spec == "single" else nodes, strategy=spec, alone=spec == "single")
        for spec in strategy
    ]
    summaries = [execute(each, quiet=as_json) for each in experiments]
    present(
        [summary.to_dict() for summary in summaries],
        lambda: Console().print(comparison_table(summaries)),
        as_json=as_json,
    )
