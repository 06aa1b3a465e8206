"""`minga simulate`: train in virtual time, on a network and with as many nodes as one likes."""

from __future__ import annotations

import dataclasses
import hashlib
import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from minga.cli.execute import print_result
from minga.cli.options import ExperimentOptions, JsonOption, WorkloadArgument, experiment_options
from minga.cli.output import say
from minga.errors import ConfigError

if TYPE_CHECKING:
    from minga.comm.simulated import ScheduledChange
    from minga.plan.cluster import PlannedCluster
    from minga.simulate.profile import Profile

__all__ = ["ProfileOption", "load_machines", "parse_change", "profile_for", "simulate"]

ProfileOption = Annotated[
    Path | None, typer.Option(metavar="FILE", help="As made by minga profile; default: measured here, once.")
]


def simulate(
    workload: WorkloadArgument,
    given: Annotated[
        ExperimentOptions,
        experiment_options(
            *("nodes", "strategy", "codec", "epochs", "steps", "batch", "total_batch", "seed"),
            *("bandwidth", "delay", "cpu", "data", "runs"),
        ),
    ],
    profile: ProfileOption = None,
    sizes: Annotated[
        bool, typer.Option("--sizes", help="No data and no gradients: only time and bytes, for thousands of nodes.")
    ] = False,
    change: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TIME:WHAT", help="On the way: 10s:bandwidth=1mbit, 10s:h2:speed=0.25, 30s:h3:lost. Repeatable."
        ),
    ] = None,
    even: Annotated[bool, typer.Option("--even", help="Every step takes the median time; no stragglers.")] = False,
    cluster: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Nodes and cables, as minga probe --out writes them.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Train in virtual time: the same strategies, events and report as a real run, without its network and nodes.

    Examples:

      minga simulate digits --nodes 16 --bandwidth 100mbit --delay 10ms --strategy ring

      minga simulate digits --nodes 1000 --bandwidth 1gbit --sizes --steps 5 --strategy ring

      minga simulate digits --nodes 4 --bandwidth 100mbit --strategy adaptive --change 5s:bandwidth=1mbit --json

      minga simulate digits --cluster cluster.toml --strategy ring
    """
    from minga.plan.cluster import CarrierCosts
    from minga.report.live import View, view_for
    from minga.simulate.simulation import simulate as simulated

    nodes: int | None = given["nodes"]
    machines = None
    if cluster is not None:
        machines = load_machines(cluster, {name: given[name] for name in ("bandwidth", "delay", "cpu")})
        nodes = nodes or machines.nodes
        if nodes > machines.nodes:
            raise ConfigError(f"{cluster} has {machines.nodes} nodes, fewer than --nodes {nodes}")
    experiment = given.experiment(workload, nodes=nodes)
    if machines is not None:
        watts = dataclasses.replace(
            experiment.measuring, idle_watts=machines.idle_watts, core_watts=machines.core_watts
        )
        experiment = dataclasses.replace(experiment, measuring=watts)
    measured = profile_for(experiment.workload, experiment.data, profile, Path(experiment.runs))
    changes = tuple(parse_change(each, experiment.hosts) for each in change or [])
    console = Console(stderr=True)
    with View() if as_json and not console.is_terminal else view_for(console) as view:
        summary = simulated(
            experiment,
            measured,
            view,
            mode="sizes" if sizes else "mathematics",
            carrier=CarrierCosts().carrier(),
            changes=changes,
            varied=not even,
            wires=None if machines is None else machines.wires(experiment.hosts),
            speeds=() if machines is None else machines.speeds,
        )
    print_result(summary, as_json=as_json)


def load_machines(path: Path, given: Mapping[str, Any]) -> PlannedCluster:
    """The cluster's file; `given`: options that say the same, by name, which are refused."""
    from minga.base.toml_files import load_config
    from minga.plan.cluster import PlannedCluster

    refused = [f"--{name}" for name, value in given.items() if value]
    if refused:
        raise ConfigError(f"{path} says what the machines are like; leave {', '.join(refused)} out, or change the file")
    return load_config(PlannedCluster, path)


def profile_for(workload: str, data: str | None, given: Path | None, runs: Path) -> Profile:
    """The profile that was asked for, or the one of this machine, which is measured when there is none yet."""
    from minga.cli.profile import measured_profile, name_of
    from minga.simulate.profile import load_profile, save_profile

    if given is not None:
        profile = load_profile(given)
        if name_of(profile.workload) != name_of(workload):
            raise ConfigError(
                f"{given} is a profile of {profile.workload}, not of {workload}: minga profile {workload} makes one"
            )
        return dataclasses.replace(profile, workload=workload)  # it may have been measured somewhere else
    source = Path(workload.partition(":")[0])
    kept = runs.expanduser() / "profiles" / f"{name_of(workload)}{_mark_of(source)}.json"
    if kept.is_file() and not (source.is_file() and source.stat().st_mtime > kept.stat().st_mtime):
        return load_profile(kept)
    measured = measured_profile(workload, data=data, batches=[], codecs=[])
    kept.parent.mkdir(parents=True, exist_ok=True)
    save_profile(measured, kept)
    say(f"measured this machine's profile: {kept}", stderr=True)
    return measured


def _mark_of(source: Path) -> str:
    """Two workloads in files of one name are two."""
    if not source.is_file():
        return ""
    return f"-{hashlib.sha256(str(source.resolve()).encode()).hexdigest()[:8]}"


def parse_change(text: str, hosts: int) -> ScheduledChange:
    """`10s:h2:bandwidth=1mbit` or, for all hosts, `10s:bandwidth=1mbit`."""
    from minga.base.units import parse_bandwidth, parse_duration, parse_fraction
    from minga.comm.simulated import ScheduledChange

    example = "such as 10s:bandwidth=1mbit, 10s:h2:speed=0.25 or 30s:h3:lost"
    parts = text.split(":")
    time, host, what = parts[0], parts[1:-1], parts[-1]
    if len(parts) not in (2, 3) or not time or not what:
        raise ConfigError(f"--change {text!r} should be a time and what happens then, {example}")
    number = None
    if host:
        name = host[0]
        if not name.startswith("h") or not name[1:].isdigit() or not 1 <= int(name[1:]) <= hosts:
            raise ConfigError(f"--change {text!r}: there is no host {name!r}; there are h1 to h{hosts}")
        number = int(name[1:]) - 1
    field, _, value = what.partition("=")

    def checked(amount: float, what: str, should: str, *, zero: bool = True) -> float:
        if not 0 <= amount < math.inf or (amount == 0 and not zero):
            raise ConfigError(f"--change {text!r}: {what} should be {should}")
        return amount

    at = ScheduledChange(time=checked(parse_duration(time), "its time", "0s or later"), host=number)
    match field:
        case "bandwidth" | "up" | "down" if value:
            rate = checked(parse_bandwidth(value) / 8, field, "0 (nothing gets through) or more")
            both: dict[str, Any] = dict.fromkeys(("up", "down") if field == "bandwidth" else (field,), rate)
            return dataclasses.replace(at, **both)
        case "delay" if value:
            return dataclasses.replace(at, delay=checked(parse_duration(value), field, "0 or more"))
        case "speed" if value:
            speed = checked(parse_fraction(value), field, "above 0, such as 0.25", zero=False)
            return dataclasses.replace(at, speed=speed)
        case "lost" if not value and number is not None:
            return dataclasses.replace(at, lost=True)
    raise ConfigError(f"--change {text!r}: nobody knows {what!r}; {example} (bandwidth, up, down, delay, speed, lost)")
