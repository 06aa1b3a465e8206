"""`minga plan`: which strategy, before you run."""

from __future__ import annotations

import dataclasses
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
    from minga.plan.pilot import Reached
    from minga.plan.planner import Goal, Plan, Planned

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
    target: Annotated[
        float | None,
        typer.Option("--target", metavar="ACCURACY", help="Such as 0.9: train the best in virtual time until then."),
    ] = None,
    pilots: Annotated[int, typer.Option("--pilots", metavar="N", help="With --target: how many are trained.")] = 3,
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

      minga plan digits --nodes 2 --bandwidth 30mbit --target 0.95

      minga plan digits --nodes 16 --bandwidth 100mbit --delay 10ms --json
    """
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from minga.errors import ConfigError, unknown
    from minga.plan.planner import pilot_runs
    from minga.plan.planner import plan as planned

    if minimise not in GOALS:
        raise unknown("goal", minimise, GOALS)
    if epochs is not None and epochs < 1:
        raise ConfigError(f"--epochs should be at least 1, not {epochs}")
    if top < 1:
        raise ConfigError(f"--top should be at least 1, not {top}")
    if target is not None and not 0 < target <= 1:
        raise ConfigError(f"--target should be an accuracy above 0 and at most 1, such as 0.9, not {target:g}")
    if pilots < 1:
        raise ConfigError(f"--pilots should be at least 1, not {pilots}")
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
        flown: list[tuple[Planned, Reached]] = []
        if target is not None:
            task = bar.add_task(f"training in virtual time until {target:g}", total=None)
            flown = pilot_runs(
                found,
                measured,
                machines,
                target=target,
                pilots=pilots,
                total_batch=total_batch,
                data=data,
                progress=lambda done, of: bar.update(task, completed=done, total=of),
            )
    best = flown[0][0] if flown and flown[0][1].seconds is not None else found.best
    command = _command(workload, best, epochs, total_batch, data)
    if as_json:
        print(json.dumps(_table(found, command) | _pilot_table(target, flown)))
        return
    _show(found, machines, top, limit)
    if target is not None:
        _show_pilots(target, flown)
    Console().print(f"run it: [bold]{command}[/]", highlight=False, soft_wrap=True)


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


def _pilot_table(target: float | None, flown: list[tuple[Planned, Reached]]) -> dict[str, Any]:
    if target is None:
        return {}
    rows = [
        {"strategy": each.candidate.name, "nodes": each.candidate.nodes, **dataclasses.asdict(reached)}
        for each, reached in flown
    ]
    return {"target": target, "pilots": rows}


def _show_pilots(target: float, flown: list[tuple[Planned, Reached]]) -> None:
    from minga.report.numbers import duration

    table = Table("", "trained in virtual time", "nodes", f"time to {target:g}", "epochs", "best accuracy", box=None)
    for place, (each, reached) in enumerate(flown, start=1):
        when = "not reached" if reached.seconds is None else duration(reached.seconds)
        epochs = "" if reached.epochs is None else f"{reached.epochs:.3g}"
        table.add_row(f"{place}", each.candidate.name, str(each.candidate.nodes), when, epochs, f"{reached.best:.3f}")
    console = Console()
    console.print(table)
    if all(reached.seconds is None for _, reached in flown):
        console.print("None of them reaches it in these epochs; more may (--epochs).", style="yellow", highlight=False)


def _show(found: Plan, machines: PlannedCluster, top: int, limit: float | None) -> None:
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
