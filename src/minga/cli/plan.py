"""`minga plan`: which strategy, before you run."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, get_args

import typer
from rich.console import Console

from minga.cli.options import DataOption, JsonOption, RunsOption, WorkloadOnlyArgument, link_options
from minga.cli.output import present, say
from minga.cli.simulate import ProfileOption, load_machines, profile_for
from minga.errors import ConfigError, unknown

if TYPE_CHECKING:
    from minga.plan.cluster import PlannedCluster
    from minga.plan.planner import Planned
    from minga.plan.trial_run import Reached

__all__ = ["plan"]


def plan(
    workload: WorkloadOnlyArgument,
    link: Annotated[dict[str, str], link_options("bandwidth", "delay")],
    cluster: Annotated[Path | None, typer.Option(metavar="FILE", help="The machines, as TOML; or say --nodes.")] = None,
    nodes: Annotated[int | None, typer.Option("--nodes", "-n", help="How many machines there are.")] = None,
    minimise: Annotated[str, typer.Option(metavar="WHAT", help="time, bytes, energy or cost.")] = "time",
    target: Annotated[
        float | None,
        typer.Option(
            metavar="VALUE", help="Accuracy (or the workload's metric): train the best in virtual time until then."
        ),
    ] = None,
    pilots: Annotated[int, typer.Option(metavar="N", help="With --target: how many are trained.")] = 3,
    within: Annotated[str | None, typer.Option(metavar="TIME", help="No longer than this: 10min, 90s.")] = None,
    epochs: Annotated[int | None, typer.Option(help="Passes over the data; default: the workload's own.")] = None,
    batches: Annotated[
        str | None, typer.Option(metavar="N,N", help="Samples of a node to choose among; default: the workload's.")
    ] = None,
    total_batch: Annotated[
        int | None, typer.Option(help="Samples of all nodes together in a step, instead of --batches.")
    ] = None,
    profile: ProfileOption = None,
    top: Annotated[int, typer.Option(help="How many to show.")] = 10,
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
    from minga.plan.planner import Goal
    from minga.plan.planner import plan as planned
    from minga.plan.trial_run import trial_runs

    goals = get_args(Goal)
    if minimise not in goals:
        raise unknown("goal", minimise, goals)
    for name, value in {"epochs": epochs, "top": top, "pilots": pilots, "total-batch": total_batch}.items():
        if value is not None and value < 1:
            raise ConfigError(f"--{name} should be at least 1, not {value}")
    sizes = _batches(batches, total_batch)
    machines = _cluster(cluster, nodes, link)
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

    def show() -> None:
        show_plan(found, machines, top, limit)
        if target is not None:
            show_pilots(target, flown)
        say(f"run it: [bold]{command}[/]")

    present(plan_table(found, command, limit) | pilot_table(target, flown), show, as_json=as_json)


def _cluster(path: Path | None, nodes: int | None, link: dict[str, str]) -> PlannedCluster:
    from minga.base.config import build
    from minga.plan.cluster import PlannedCluster

    if path is not None:
        return load_machines(path, {"nodes": nodes, **link})
    if nodes is None:
        raise ConfigError("say what machines there are: --cluster FILE, or --nodes 4 --bandwidth 100mbit")
    return build(PlannedCluster, {"nodes": nodes, "network": link})


def _batches(text: str | None, total_batch: int | None) -> list[int]:
    """`32,64,128`."""
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
    candidate = best.candidate
    words = ["minga", "train", workload, "--nodes", str(candidate.nodes), "--strategy", candidate.name]
    given = {"--total-batch": total_batch, "--epochs": epochs, "--data": data}
    if total_batch is None:
        words += ["--batch", str(candidate.batch)]
    for option, value in given.items():
        words += [option, str(value)] if value is not None else []
    return shlex.join(words)
