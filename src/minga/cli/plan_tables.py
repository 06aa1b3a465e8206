"""A plan as people read it, and as JSON."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from rich.console import Console
from rich.table import Table

from minga.cli.output import say
from minga.plan.cluster import PlannedCluster
from minga.plan.planner import Plan, Planned
from minga.plan.trial_run import Reached
from minga.report.numbers import duration, size

__all__ = ["pilot_table", "plan_table", "show_pilots", "show_plan"]

# For so many the reason is shown.
_REASONS = 3
_WIDE = 110


def plan_table(found: Plan, command: str, limit: float | None) -> dict[str, Any]:
    return {
        "goal": found.goal,
        "within": limit,
        "fits": limit is None or found.best.seconds <= limit,
        "one_node_is_best": found.best.candidate.nodes == 1,
        "epochs": found.epochs,
        "command": command,
        "left_out": found.left_out,
        "too_near": found.too_near,
        "candidates": [
            {
                "strategy": each.candidate.name,
                "nodes": each.candidate.nodes,
                "batch": each.candidate.batch,
                "exact": each.candidate.exact,
                "order": list(each.candidate.order),
                "step_seconds": each.price.step_seconds,
                "step_seconds_between": each.price.step_between,
                "waiting": each.price.waiting,
                "waiting_between": each.price.waiting_between,
                **_amounts(each, found.epochs),
                "epochs_assumed": each.epochs,
                "why": each.why,
            }
            for each in found.ranked
        ],
    }


def _amounts(each: Planned, epochs: float) -> dict[str, Any]:
    """What all epochs take, and the lowest and highest that may be."""
    amounts: dict[str, Any] = {}
    for name, what in (("seconds", "time"), ("bytes", "bytes"), ("joules", "energy"), ("cost", "cost")):
        amounts[name] = each.price.total(epochs, what)
        amounts[f"{name}_between"] = each.price.between(epochs, what)
    return amounts


def pilot_table(target: float | None, flown: list[tuple[Planned, Reached]]) -> dict[str, Any]:
    if target is None:
        return {}
    rows = [
        {
            "strategy": each.candidate.name,
            "nodes": each.candidate.nodes,
            **dataclasses.asdict(reached),
            "seconds_between": reached.seconds_between,
        }
        for each, reached in flown
    ]
    return {"target": target, "pilots": rows}


def _between(limits: tuple[float, float]) -> str:
    lowest, highest = limits
    if highest < 60:
        return f"{lowest:.1f} to {duration(highest)}"
    return f"{duration(lowest)} to {duration(highest)}"


def show_pilots(target: float, flown: list[tuple[Planned, Reached]]) -> None:
    metric = flown[0][1].metric
    heads = ["trained in virtual time", "nodes", f"time to {target:g}", "between", "epochs", f"best {metric}"]
    table = Table("", *heads, box=None)
    for place, (each, reached) in enumerate(flown, start=1):
        when = reached.problem or ("not reached" if reached.seconds is None else duration(reached.seconds))
        about = "" if reached.seconds_between is None else _between(reached.seconds_between)
        epochs = "" if reached.epochs is None else f"{reached.epochs:.3g}"
        nodes, best = str(each.candidate.nodes), f"{reached.best:.3f}"
        table.add_row(f"{place}", each.candidate.name, nodes, when, about, epochs, best)
    Console().print(table)
    if all(reached.seconds is None for _, reached in flown):
        say("None of them reaches it in these epochs; more may (--epochs).", style="yellow")


def show_plan(found: Plan, machines: PlannedCluster, top: int, limit: float | None) -> None:
    console = Console()
    columns: dict[str, Callable[[Planned], str]] = {
        "strategy": lambda each: each.candidate.name + ("" if each.candidate.exact else " ~"),
        "nodes": lambda each: str(each.candidate.nodes),
        "batch": lambda each: str(each.candidate.batch),
        "a step": lambda each: f"{1000 * each.price.step_seconds:,.1f} ms",
        "waiting": lambda each: f"{each.price.waiting:.0%}",
        "time": lambda each: duration(each.seconds),
        "between": lambda each: _between(each.price.between(found.epochs, "time")),
        "sent": lambda each: size(each.price.total(found.epochs, "bytes")),
        "energy": lambda each: f"{each.price.total(found.epochs, 'energy') / 1000:,.2f} kJ",
        "cost": lambda each: f"{each.price.total(found.epochs, 'cost'):,.4f}",
    }
    # In a narrow terminal, what other columns show too gives way to the strategies' names.
    left_out = {"batch", "between", "energy"} if console.width < _WIDE else set()
    shown = {head: cell for head, cell in columns.items() if head not in left_out}
    if not machines.price_per_hour:
        del shown["cost"]
    table = Table("", *shown, box=None)
    table.columns[1].overflow = "fold"
    for place, each in enumerate(found.ranked[:top], start=1):
        table.add_row(f"{place}", *(cell(each) for cell in shown.values()))
    console.print(table)
    for place, each in enumerate(found.ranked[: min(top, _REASONS)], start=1):
        say(f"{place}: {each.why}")
    best = found.best
    if best.candidate.order:
        names = ", ".join(f"h{node + 1}" for node in best.candidate.order)
        say(f"ranks in this order: {names}; machines get them in the order of joining")
    alone = next((each for each in found.ranked if each.candidate.nodes == 1), None)
    if best.candidate.nodes == 1:
        say("[bold]One node is best.[/]")
    elif alone is not None:
        say(f"{alone.seconds / best.seconds:.2f}x as fast as one node ({duration(alone.seconds)})")
    if found.too_near:
        say(f"{found.too_near} more are too near to the first to be sure", style="dim")
    if found.left_out:
        say(f"{len(found.left_out)} more could not be priced; --json says why", style="dim")
    if len({each.candidate.batch for each in found.ranked if each.candidate.nodes == 1}) > 1:
        text = "An epoch in larger batches has fewer steps, which may learn less: --target shows what they reach."
        say(text, style="yellow")
    if limit is not None and best.seconds > limit:
        say(f"nothing takes less than {duration(limit)}", style="yellow")
    say(
        f"{found.epochs:g} epochs; times are predictions, nine of ten within what is given; energy is estimated; "
        "~: not exactly what one node would learn, so some more epochs are assumed",
        style="dim",
    )
