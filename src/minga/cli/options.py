"""The options that describe an experiment, the same for every command that runs one."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from minga.errors import ConfigError

if TYPE_CHECKING:
    from minga.runs.experiment import Experiment

__all__ = [
    "BandwidthOption",
    "BatchOption",
    "CheckpointEveryOption",
    "CheckpointsOption",
    "CodecOption",
    "CpuOption",
    "DataOption",
    "DelayOption",
    "EpochsOption",
    "HeartbeatOption",
    "InterfaceOption",
    "JsonOption",
    "MinNodesOption",
    "NodesOption",
    "RunsOption",
    "SeedOption",
    "SetOption",
    "StartFromOption",
    "StepsOption",
    "StrategyOption",
    "TlsOption",
    "TokenFileOption",
    "TotalBatchOption",
    "TransportOption",
    "check_writable",
    "elastic_options",
    "experiment_from",
]

NodesOption = Annotated[int | None, typer.Option("--nodes", "-n", help="Workers; servers come on top.")]
StrategyOption = Annotated[
    str | None,
    typer.Option(
        "--strategy", "-s", metavar="SPEC", help="name[:field=value,...] or file.py:Class (minga strategies lists)"
    ),
]
CodecOption = Annotated[
    str | None,
    typer.Option(
        "--codec",
        metavar="SPEC",
        help="Form of vectors on the wire: half, int8, top_k:ratio=0.01...; see 'minga strategies'.",
    ),
]
EpochsOption = Annotated[int | None, typer.Option(help="Passes over the data.")]
StepsOption = Annotated[int | None, typer.Option(help="Steps of every worker, instead of epochs.")]
BatchOption = Annotated[int | None, typer.Option("--batch", "-b", help="Samples of each node in a step.")]
TotalBatchOption = Annotated[
    int | None, typer.Option("--total-batch", help="Samples of all nodes together in a step, instead of --batch.")
]
BandwidthOption = Annotated[
    str | None, typer.Option(metavar="RATE", help="Run in a lab, on hosts with such links: 10mbit, 1gbit.")
]
DelayOption = Annotated[str | None, typer.Option(metavar="TIME", help="Run in a lab: one way between hosts, 5ms.")]
CpuOption = Annotated[
    str | None, typer.Option(metavar="CORES", help="Run in a lab: cores' worth of time of each host, 0.5 or 1,1,0.5.")
]
SeedOption = Annotated[int | None, typer.Option(help="Decides initial parameters, data order, dropout.")]
StartFromOption = Annotated[
    str | None,
    typer.Option(
        "--start-from",
        metavar="RUN|FILE",
        help="Begin with the weights of a finished run, or of a safetensors file, instead of random ones.",
    ),
]
DataOption = Annotated[
    str | None,
    typer.Option(
        metavar="DIR", help="Directory with data sets; default: MINGA_DATA, or where minga data fetch puts them."
    ),
]
RunsOption = Annotated[str | None, typer.Option(metavar="DIR", help="Where run directories go; default: runs")]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="PATH=VALUE", help="Any field, such as training.learning_rate=0.01. Repeatable."),
]
CheckpointEveryOption = Annotated[
    str | None,
    typer.Option("--checkpoint-every", metavar="TIME|STEPS", help="How often to keep a checkpoint: 30s, 500steps."),
]
CheckpointsOption = Annotated[
    bool | None, typer.Option("--checkpoints/--no-checkpoints", help="Whether to keep any; default: every minute.")
]
TransportOption = Annotated[
    str | None,
    typer.Option(
        "--transport",
        metavar="NAME",
        help="tcp (default): when a node is lost, the others go on. gloo (default of native): the run ends.",
    ),
]
MinNodesOption = Annotated[
    int | None,
    typer.Option("--min-nodes", metavar="N", help="With fewer workers, those who are left wait for others. Means tcp."),
]
HeartbeatOption = Annotated[
    str | None,
    typer.Option(
        "--heartbeat-timeout", metavar="TIME", help="A node that is silent for so long is out; default 5s. Means tcp."
    ),
]
InterfaceOption = Annotated[
    str | None, typer.Option("--interface", metavar="NAME", help="Network interface to use, such as eth0.")
]
TlsOption = Annotated[
    str | None,
    typer.Option("--tls", metavar="DIR", help="Encrypt everything; this node's directory as made by minga cert."),
]
TokenFileOption = Annotated[
    Path | None, typer.Option("--token-file", metavar="FILE", help="File with the run's token; or MINGA_TOKEN.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object, for machines.")]


def check_writable(path: Path) -> None:
    """Before the work whose result goes there."""
    folder = path.expanduser().parent
    if not folder.is_dir():
        raise ConfigError(f"can't write {path}: there is no directory {folder}")
    if path.is_dir() or not os.access(path if path.exists() else folder, os.W_OK):
        raise ConfigError(f"can't write {path}: {'it is a directory' if path.is_dir() else 'not allowed'}")


def experiment_from(
    workload: str,
    *,
    codec: str | None,
    settings: list[str] | None,
    alone: bool = False,
    checkpoint_every: str | None = None,
    checkpoints: bool | None = None,
    **options: Any,
) -> Experiment:
    """The experiment that the options describe; `workload` may be an experiment's TOML file, which they change.

    `alone`: as one node of the cluster that is described, the first one.
    """
    import tomllib

    from minga.base.config import build
    from minga.runs.experiment import Experiment, load, with_codec, with_overrides

    table: dict[str, Any] = {"workload": workload}
    if workload.endswith(".toml"):
        load(Path(workload))  # for its errors, which name the line
        table = tomllib.loads(Path(workload).read_text(encoding="utf-8"))
    places = {
        "nodes": "cluster.nodes",
        "transport": "cluster.transport",
        "min_nodes": "cluster.min_nodes",
        "heartbeat_timeout_seconds": "cluster.heartbeat_timeout_seconds",
        "strategy": "strategy",
        "epochs": "training.epochs",
        "steps": "training.steps",
        "batch": "training.batch",
        "total_batch": "training.total_batch",
        "bandwidth": "cluster.network.bandwidth",
        "delay": "cluster.network.delay",
        "cpu": "cluster.cpu",
        "seed": "training.seed",
        "start_from": "training.start_from",
        "data": "data",
        "runs": "runs",
    }
    overrides = {places[name]: value for name, value in options.items() if value is not None}
    if "training.steps" in overrides:
        table.get("training", {}).pop("epochs", None)
    if "training.epochs" in overrides:
        table.get("training", {}).pop("steps", None)
    for one, other in (("batch", "total_batch"), ("total_batch", "batch")):
        if f"training.{one}" in overrides:
            table.get("training", {}).pop(other, None)
    overrides |= _checkpoints(checkpoint_every, checkpoints)
    for setting in settings or []:
        path, equals, value = setting.partition("=")
        if not equals:
            raise ConfigError(f"--set {setting!r} should be path.to.field=value, such as training.learning_rate=0.01")
        overrides[path.strip()] = value.strip()
    table = with_overrides(table, overrides)
    if alone:
        _keep_first_host(table.get("cluster", {}))
    return with_codec(build(Experiment, table), codec)


def elastic_options(transport: str | None, min_nodes: int | None, heartbeat_timeout: str | None) -> dict[str, Any]:
    """For `experiment_from`: what is said of runs that lose and gain nodes, which only one transport can do."""
    from minga.base.units import parse_duration

    given = {"--min-nodes": min_nodes, "--heartbeat-timeout": heartbeat_timeout}
    needing = [name for name, value in given.items() if value is not None]
    if needing and transport not in (None, "tcp"):
        raise ConfigError(f"{needing[0]} is for runs that lose nodes and go on: --transport tcp, not {transport}")
    return {
        "transport": "tcp" if needing else transport,
        "min_nodes": min_nodes,
        "heartbeat_timeout_seconds": parse_duration(heartbeat_timeout) if heartbeat_timeout is not None else None,
    }


def _checkpoints(every: str | None, wanted: bool | None) -> dict[str, Any]:
    from minga.base.units import parse_duration

    overrides: dict[str, Any] = {} if wanted is None else {"checkpoints.enabled": wanted}
    if every is None:
        return overrides
    steps = re.fullmatch(r"\s*(\d+)\s*steps?\s*", every)
    if steps is not None and int(steps[1]) > 0:
        return {**overrides, "checkpoints.every_steps": int(steps[1]), "checkpoints.every_seconds": 0}
    try:
        seconds = parse_duration(every)
    except ConfigError:
        seconds = 0
    if not seconds > 0:
        raise ConfigError(f"--checkpoint-every {every!r} should be a time such as 30s, or steps such as 500steps")
    return {**overrides, "checkpoints.every_seconds": seconds, "checkpoints.every_steps": 0}


def _keep_first_host(cluster: dict[str, Any]) -> None:
    """Of what is said of each host, leave what is said of the first one; it has nobody to talk to."""
    shares = cluster.get("cpu")
    if shares:
        cluster["cpu"] = shares.partition(",")[0] if isinstance(shares, str) else shares[:1]
    cluster.pop("speeds", None)
    for name in ("hosts", "sites", "between"):
        cluster.get("network", {}).pop(name, None)
