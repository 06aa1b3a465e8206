"""`minga plan`: which strategy, before you run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from minga.cli.options import DataOption, JsonOption, RunsOption, TotalBatchOption
from minga.cli.simulate import ProfileOption, profile_for

if TYPE_CHECKING:
    from minga.plan.cluster import PlannedCluster
    from minga.plan.planner import Goal, Plan, Planned
    from minga.simulate.profile import Profile

__all__ = ["register"]

GOALS = ("time", "bytes", "energy", "cost")
# Of so many the reason is told.
_REASONS = 3


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
    within: Annotated[
        str | None, typer.Option("--within", metavar="TIME", help="No longer than this: 10min, 90s.")
    ] = None,
    epochs: Annotated[int | None, typer.Option(help="Passes over the data; default: the workload's own.")] = None,
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

      minga plan digits --nodes 16 --bandwidth 100mbit --delay 10ms --json
    """
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from minga.errors import ConfigError, unknown
    from minga.plan.planner import plan as planned

    if minimise not in GOALS:
        raise unknown("goal", minimise, GOALS)
    if epochs is not None and epochs < 1:
        raise ConfigError(f"--epochs should be at least 1, not {epochs}")
    if top < 1:
        raise ConfigError(f"--top should be at least 1, not {top}")
    machines = _cluster(cluster, nodes, bandwidth, delay)
    limit = _seconds(within) if within is not None else None
    measured = profile_for(workload, data, profile, Path(runs or "runs"))
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    goal: Goal = minimise  # type: ignore[assignment]
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(f"{workload}: candidates", total=None)
        found = planned(
            measured,
            machines,
            goal=goal,
            epochs=epochs,
            within=limit,
            total_batch=total_batch,
            progress=lambda done, of: bar.update(task, completed=done, total=of),
        )
    command = _command(workload, found.best, epochs, total_batch, data)
    if as_json:
        print(json.dumps(_table(found, command)))
        return
    _show(found, measured, machines, command, top, limit)


def _cluster(path: Path | None, nodes: int | None, bandwidth: str | None, delay: str | None) -> PlannedCluster:
    from minga.config import build
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


def _seconds(text: str) -> float:
    """`10min`, `2h`, `90s`."""
    import re

    from minga.errors import ConfigError

    match = re.fullmatch(r"\s*([0-9.]+)\s*(s|min|h)\s*", text)
    try:
        if match is not None and float(match[1]) > 0:
            return float(match[1]) * {"s": 1, "min": 60, "h": 3600}[match[2]]
    except ValueError:
        pass
    raise ConfigError(f"--within {text!r} is no time; write it as 90s, 10min or 2h")


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


def _table(found: Plan, command: str) -> dict[str, Any]:
    return {
        "goal": found.goal,
        "epochs": found.epochs,
        "command": command,
        "candidates": [
            {
                "strategy": each.candidate.name,
                "nodes": each.candidate.nodes,
                "batch": each.candidate.batch,
                "exact": each.candidate.exact,
                "order": list(each.candidate.order),
                "seconds": each.seconds,
                "step_seconds": each.price.step_seconds,
                "waiting": each.price.waiting,
                "bytes": each.price.total(found.epochs, "bytes"),
                "joules": each.price.total(found.epochs, "energy"),
                "cost": each.price.total(found.epochs, "cost"),
                "epochs_assumed": each.epochs,
                "why": each.why,
            }
            for each in found.ranked
        ],
    }


def _show(found: Plan, profile: Profile, machines: PlannedCluster, command: str, top: int, limit: float | None) -> None:
    from minga.report.numbers import duration, size

    console = Console()
    priced = machines.price_per_hour > 0
    heads = ["strategy", "nodes", "batch", "a step", "time", "sent", "energy", *(["cost"] if priced else [])]
    table = Table("", *heads, box=None)
    table.columns[1].overflow = "fold"
    for place, each in enumerate(found.ranked[:top], start=1):
        price = each.price
        mark = "" if each.candidate.exact else " ~"
        table.add_row(
            f"{place}",
            each.candidate.name + mark,
            str(each.candidate.nodes),
            str(each.candidate.batch),
            f"{1000 * price.step_seconds:,.1f} ms",
            duration(each.seconds),
            size(price.total(found.epochs, "bytes")),
            f"{price.total(found.epochs, 'energy') / 1000:,.2f} kJ",
            *([f"{price.total(found.epochs, 'cost'):,.4f}"] if priced else []),
        )
    console.print(table)
    for place, each in enumerate(found.ranked[: min(top, _REASONS)], start=1):
        console.print(f"{place}: {each.why}", highlight=False, soft_wrap=True)
    best = found.best
    alone = next((each for each in found.ranked if each.candidate.nodes == 1), None)
    if best.candidate.nodes == 1:
        console.print("[bold]One node is best.[/]", highlight=False)
    elif alone is not None:
        faster = alone.seconds / best.seconds
        console.print(f"{faster:.2f}x as fast as one node ({duration(alone.seconds)})", highlight=False)
    if limit is not None and best.seconds > limit:
        console.print(f"nothing takes less than {duration(limit)}", style="yellow", highlight=False)
    console.print(
        f"{found.epochs:g} epochs; times are predictions and energy is estimated; "
        "~: not exactly what one node would learn, so some more epochs are assumed",
        style="dim",
        highlight=False,
        soft_wrap=True,
    )
    console.print(f"run it: [bold]{command}[/]", highlight=False, soft_wrap=True)
