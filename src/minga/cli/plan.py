"""`minga plan`: which strategy, before you run."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, get_args

import typer
from rich.console import Console

from minga.cli.options import DataOption, JsonOption, RunsOption, TotalBatchOption
from minga.cli.simulate import ProfileOption, profile_for

if TYPE_CHECKING:
    from minga.plan.cluster import PlannedCluster
    from minga.plan.planner import Planned
    from minga.plan.trial_run import Reached

__all__ = ["register"]


def register(application: typer.Typer) -> None:
    application.command("plan", no_args_is_help=True)(plan)


def plan(
    workload: Annotated[str, typer.Argument(help="A built-in workload (digits, mnist, ...) or file.py:name.")],
    cluster: Annotated[
        Path | None, typer.Option("--cluster", metavar="FILE", help="The machines, as TOML; or say --nodes.")
    ] = None,
    nodes: Annotated[int | None, typer.Option("--nodes", "-n", help="How many machines there are.")] = None,
    bandwidth: Annotated[str | None, typer.Option(metavar="RATE", help="Of their links: 10mbit, 1gbit.")] = None,
    delay: Annotated[str | None, typer.Option(metavar="TIME", help="One way between them: 5ms.")] = None,
    minimise: Annotated[str, typer.Option("--minimise", metavar="WHAT", help="time, bytes, energy or cost.")] = "time",
    target: Annotated[
        float | None,
        typer.Option(
            "--target",
            metavar="VALUE",
            help="Accuracy (or the workload's metric): train the best in virtual time until then.",
        ),
    ] = None,
    pilots: Annotated[int, typer.Option("--pilots", metavar="N", help="With --target: how many are trained.")] = 3,
    within: Annotated[
        str | None, typer.Option("--within", metavar="TIME", help="No longer than this: 10min, 90s.")
    ] = None,
    epochs: Annotated[int | None, typer.Option(help="Passes over the data; default: the workload's own.")] = None,
    batches: Annotated[
        str | None,
        typer.Option("--batches", metavar="N,N", help="Samples of a node to choose among; default: the workload's."),
    ] = None,
    total_batch: TotalBatchOption = None,
    profile: ProfileOption = None,
    top: Annotated[int, typer.Option("--top", help="How many to show.")] = 10,
    data: DataOption = None,
    runs: RunsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Say which strategy to use, on how many of your machines, before you run: predicted, ranked, with the reason.

    Examples:

      minga plan digits --nodes 4 --bandwidth 10mbit

      minga plan my.py:workload --cluster cluster.toml --minimise cost --within 10min

      minga plan digits --nodes 2 --bandwidth 30mbit --target 0.95

      minga plan digits --nodes 16 --bandwidth 100mbit --delay 10ms --json
    """
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from minga.base.units import parse_duration
    from minga.cli.plan_tables import pilot_table, plan_table, show_pilots, show_plan
    from minga.errors import ConfigError, unknown
    from minga.plan.planner import Goal
    from minga.plan.planner import plan as planned
    from minga.plan.trial_run import trial_runs

    goals = get_args(Goal)
    if minimise not in goals:
        raise unknown("goal", minimise, goals)
    if epochs is not None and epochs < 1:
        raise ConfigError(f"--epochs should be at least 1, not {epochs}")
    if top < 1:
        raise ConfigError(f"--top should be at least 1, not {top}")
    if pilots < 1:
        raise ConfigError(f"--pilots should be at least 1, not {pilots}")
    if total_batch is not None and total_batch < 1:
        raise ConfigError(f"--total-batch should be at least 1, not {total_batch}")
    sizes = _batches(batches, total_batch)
    machines = _cluster(cluster, nodes, bandwidth, delay)
    if minimise == "cost" and not machines.price_per_hour:
        raise ConfigError("--minimise cost needs a price: write price_per_hour in the cluster's file (--cluster FILE)")
    limit = parse_duration(within) if within is not None else None
    if limit is not None and not limit > 0:
        raise ConfigError(f"--within should be above 0, not {within}")
    if target is not None:
        _check_target(target, workload, data)
    measured = profile_for(workload, data, profile, Path(runs or "runs"))
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(f"{workload}: candidates", total=None)
        found = planned(
            measured,
            machines,
            goal=minimise,  # type: ignore[arg-type]
            epochs=epochs,
            within=limit,
            total_batch=total_batch,
            batches=sizes,
            processes=len(os.sched_getaffinity(0)),
            progress=lambda done, of: bar.update(task, completed=done, total=of),
        )
        flown: list[tuple[Planned, Reached]] = []
        if target is not None:
            task = bar.add_task(f"training in virtual time until {target:g}", total=None)
            flown = trial_runs(
                found,
                measured,
                machines,
                target=target,
                pilots=pilots,
                within=limit,
                total_batch=total_batch,
                data=data,
                progress=lambda done, of: bar.update(task, completed=done, total=of),
            )
    best = flown[0][0] if flown and flown[0][1].seconds is not None else found.best
    command = _command(workload, best, epochs, total_batch, data)
    if as_json:
        print(json.dumps(plan_table(found, command, limit) | pilot_table(target, flown)))
        return
    show_plan(found, machines, top, limit)
    if target is not None:
        show_pilots(target, flown)
    Console().print(f"run it: [bold]{command}[/]", highlight=False, soft_wrap=True)


def _cluster(path: Path | None, nodes: int | None, bandwidth: str | None, delay: str | None) -> PlannedCluster:
    from minga.base.config import build
    from minga.errors import ConfigError
    from minga.plan.cluster import PlannedCluster, load_cluster

    if path is not None:
        given = [name for name, value in (("--nodes", nodes), ("--bandwidth", bandwidth), ("--delay", delay)) if value]
        if given:
            raise ConfigError(
                f"{path} says what the machines are like; leave {', '.join(given)} out, or change the file"
            )
        return load_cluster(path)
    if nodes is None:
        raise ConfigError("say what machines there are: --cluster FILE, or --nodes 4 --bandwidth 100mbit")
    network = {name: value for name, value in (("bandwidth", bandwidth), ("delay", delay)) if value is not None}
    return build(PlannedCluster, {"nodes": nodes, "network": network})


def _batches(text: str | None, total_batch: int | None) -> list[int]:
    """`32,64,128`."""
    from minga.errors import ConfigError

    if text is None:
        return []
    if total_batch is not None:
        raise ConfigError("--total-batch fixes what nodes take in a step; leave --batches out")
    try:
        found = [int(word) for word in text.split(",")]
    except ValueError:
        found = [0]
    if min(found) < 1:
        raise ConfigError(f"--batches should be numbers above 0, as in 32,64,128, not {text!r}")
    return sorted(set(found))


def _check_target(target: float, workload: str, data: str | None) -> None:
    """Before anything takes time."""
    from minga.errors import ConfigError
    from minga.measure.metric_names import is_share
    from minga.runs.workload import load_workload

    loaded = load_workload(workload, data)
    if loaded.test is None:
        raise ConfigError(f"--target is of a metric on test data, and {workload} has no test data; leave --target out")
    if is_share(loaded.main_metric) and not 0 < target <= 1:
        raise ConfigError(
            f"--target should be an {loaded.main_metric} above 0 and at most 1, such as 0.9, not {target:g}"
        )


def _command(workload: str, best: Planned, epochs: int | None, total_batch: int | None, data: str | None) -> str:
    """What runs the winner."""
    import shlex

    candidate = best.candidate
    words = ["minga", "train", workload, "--nodes", str(candidate.nodes), "--strategy", candidate.name]
    if total_batch is not None:
        words += ["--total-batch", str(total_batch)]
    else:
        words += ["--batch", str(candidate.batch)]
    if epochs is not None:
        words += ["--epochs", str(epochs)]
    if data is not None:
        words += ["--data", data]
    return shlex.join(words)
