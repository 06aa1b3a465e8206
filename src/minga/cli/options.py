"""The options that many commands have; those of an experiment set its fields, one line for each.

def simulate(
    workload: WorkloadArgument,
    given: Annotated[ExperimentOptions, experiment_options("nodes", "strategy")],
    as_json: JsonOption = False,
) -> None:
    experiment = given.experiment(workload)     # minga simulate digits --nodes 16 --set training.seed=3
"""

from __future__ import annotations

import functools
import inspect
import re
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from minga.cli.option_groups import OptionGroup, optional
from minga.errors import ConfigError

if TYPE_CHECKING:
    from minga.base.config import Config
    from minga.runs.experiment import Experiment

__all__ = [
    "EXPERIMENT_OPTIONS",
    "LINK_OPTIONS",
    "DataOption",
    "DataPathOption",
    "ExperimentOptions",
    "FieldOption",
    "JsonOption",
    "OptionalWorkloadArgument",
    "RunsOption",
    "WorkloadArgument",
    "WorkloadOnlyArgument",
    "experiment_options",
    "link_options",
]

_WORKLOAD = typer.Argument(help="A built-in workload (digits, mnist, ...), file.py:name, or an experiment.toml.")
WorkloadArgument = Annotated[str, _WORKLOAD]
OptionalWorkloadArgument = Annotated[str | None, _WORKLOAD]
WorkloadOnlyArgument = Annotated[str, typer.Argument(help="A built-in workload (digits, mnist, ...) or file.py:name.")]
_DATA = typer.Option(
    metavar="DIR", help="Directory with data sets; default: MINGA_DATA, or where minga data fetch puts them."
)
DataOption = Annotated[str | None, _DATA]
DataPathOption = Annotated[Path | None, _DATA]
RunsOption = Annotated[str | None, typer.Option(metavar="DIR", help="Where run directories go; default: runs")]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="PATH=VALUE", help="Any field, such as training.learning_rate=0.01. Repeatable."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object, for machines.")]


@dataclass(frozen=True)
class FieldOption:
    """An option that sets a field of a configuration. Its name is `--` and its key in the table."""

    path: str
    """The field: `training.seed`."""
    flag: str | None = None
    """One more name, such as `-n`."""
    metavar: str | None = None
    help: str | Callable[[], str] | None = None
    """Default: the first sentence under the field."""
    instead_of: str | None = None
    """What a file says there is left out where this is given."""
    needs_tcp: bool = False
    """Whether it is for runs that lose and gain nodes."""
    read: Callable[[Any], Mapping[str, Any]] | None = None
    """The fields that a value sets, where it is not this one alone."""

    def sets(self, value: Any) -> Mapping[str, Any]:
        return {self.path: value} if self.read is None else self.read(value)

    def parameter(self, name: str, config: type[Config]) -> inspect.Parameter:
        kind, about = _field(config, self.path)
        about = about if self.help is None else self.help if isinstance(self.help, str) else self.help()
        option = typer.Option(
            *([f"--{name.replace('_', '-')}", self.flag] if self.flag else []),  # alone, the parser makes it
            metavar=self.metavar,
            help=about + (" Means tcp." if self.needs_tcp else ""),
            rich_help_panel=_PANELS.get(self.path.partition(".")[0]),
        )
        return optional(name, kind, option)


def _field(config: Any, path: str) -> tuple[Any, str]:
    """What the command line takes for a field (text, where the configuration makes something else of it), and its
    documentation's first sentence."""
    from pydantic import BeforeValidator

    from minga.base.config import documentation_of

    *outer, last = path.split(".")
    for name in outer:
        config = _without_none(_hints(config)[name])
    kind, about = _without_none(_hints(config)[last]), documentation_of(config)[last]
    if not any(isinstance(each, BeforeValidator) for each in getattr(kind, "__metadata__", ())):
        kind = getattr(kind, "__origin__", kind)
    sentence = re.match(r".*?\.(?=\s|$)", about, re.DOTALL)
    shown = " ".join((sentence[0] if sentence else about).split()).replace("`", "")
    return kind if kind in (int, float, bool) else str, shown


@functools.cache
def _hints(config: Any) -> Mapping[str, Any]:
    return typing.get_type_hints(config, include_extras=True)


def _without_none(hint: Any) -> Any:
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        (hint,) = (each for each in typing.get_args(hint) if each is not type(None))
    return hint


def _transports() -> str:
    from minga.comm import TRANSPORTS

    return "; ".join(f"{name}: {kind.about}" for name, kind in TRANSPORTS.items()) + "."


def _checkpoint_every(text: str) -> Mapping[str, Any]:
    from minga.base.units import parse_duration

    steps = re.fullmatch(r"\s*(\d+)\s*steps?\s*", text)
    if steps is not None and int(steps[1]) > 0:
        return {"checkpoints.every_steps": int(steps[1]), "checkpoints.every_seconds": 0}
    try:
        seconds = parse_duration(text)
    except ConfigError:
        seconds = 0
    if not seconds > 0:
        raise ConfigError(f"--checkpoint-every {text!r} should be a time such as 30s, or steps such as 500steps")
    return {"checkpoints.every_seconds": seconds, "checkpoints.every_steps": 0}


_PANELS = {"cluster": "Cluster", "training": "Training", "checkpoints": "Checkpoints", "strategy": "Strategy"}

EXPERIMENT_OPTIONS: dict[str, FieldOption] = {
    "nodes": FieldOption("cluster.nodes", "-n"),
    "strategy": FieldOption(
        "strategy", "-s", "SPEC", "name[:field=value,...] or file.py:Class ('minga strategies' lists them)."
    ),
    "codec": FieldOption(
        "strategy.codec", None, "SPEC", "Form of vectors on the wire: half, int8, top_k:ratio=0.01, ..."
    ),
    "epochs": FieldOption("training.epochs", instead_of="training.steps"),
    "steps": FieldOption("training.steps", instead_of="training.epochs"),
    "batch": FieldOption("training.batch", "-b", instead_of="training.total_batch"),
    "total_batch": FieldOption("training.total_batch", instead_of="training.batch"),
    "seed": FieldOption("training.seed"),
    "start_from": FieldOption("training.start_from", metavar="RUN|FILE"),
    "bandwidth": FieldOption(
        "cluster.network.bandwidth", None, "RATE", "Run in a lab, on hosts with such links: 10mbit, 1gbit."
    ),
    "delay": FieldOption("cluster.network.delay", None, "TIME", "Run in a lab: one way between hosts, 5ms."),
    "cpu": FieldOption("cluster.cpu", None, "CORES", "Run in a lab: cores' worth of time of each host, such as 1,0.5."),
    "transport": FieldOption("cluster.transport", None, "NAME", _transports),
    "min_nodes": FieldOption("cluster.min_nodes", metavar="N", needs_tcp=True),
    "heartbeat_timeout": FieldOption("cluster.heartbeat_timeout_seconds", metavar="TIME", needs_tcp=True),
    "checkpoint_every": FieldOption(
        "checkpoints.every_seconds",
        metavar="TIME|STEPS",
        help="How often to keep a checkpoint: 30s, 500steps.",
        read=_checkpoint_every,
    ),
    "checkpoints": FieldOption("checkpoints.enabled", help="Whether to keep any; default: every minute."),
    "data": FieldOption("data", metavar="DIR"),
    "runs": FieldOption("runs", metavar="DIR"),
}

_VALUES = {"bandwidth": "RATE", "up": "RATE", "down": "RATE", "delay": "TIME", "jitter": "TIME", "loss": "PART"}
LINK_OPTIONS = {name: FieldOption(name, None, metavar) for name, metavar in _VALUES.items()}


def link_options(*names: str) -> OptionGroup:
    """Those with these names (default: all); the command gets a table of what is given."""

    def parameters() -> list[inspect.Parameter]:
        from minga.runs.network import Link

        return [LINK_OPTIONS[name].parameter(name, Link) for name in names or LINK_OPTIONS]

    return OptionGroup(parameters, lambda given: {name: value for name, value in given.items() if value is not None})


def experiment_options(*names: str) -> OptionGroup:
    """Those with these names (default: all), and `--set`; the command gets `ExperimentOptions`."""

    def parameters() -> list[inspect.Parameter]:
        from minga.runs.experiment import Experiment

        chosen = [EXPERIMENT_OPTIONS[name].parameter(name, Experiment) for name in names or EXPERIMENT_OPTIONS]
        any_field = inspect.Parameter("settings", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=SetOption)
        return [*chosen, any_field]

    return OptionGroup(parameters, ExperimentOptions)


class ExperimentOptions:
    """What a command's options say of an experiment."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        self._given = {name: value for name, value in given.items() if value is not None}

    def __getitem__(self, name: str) -> Any:
        """An option's value; None where it is not given."""
        return self._given.get(name)

    def experiment(self, workload: str, *, alone: bool = False, **changed: Any) -> Experiment:
        """The experiment that they describe; `workload` may be an experiment's TOML file, which they change.

        `changed`: options by name, instead of what was given. `alone`: as one node of the cluster, the first one.
        """
        from minga.base.config import build
        from minga.base.toml_files import read_toml
        from minga.runs.experiment import Experiment, load, with_codec, with_overrides

        table: dict[str, Any] = {"workload": workload}
        if workload.endswith(".toml"):
            load(Path(workload))  # for its errors, which name the line
            _, table = read_toml(Path(workload))
        given = {name: value for name, value in {**self._given, **changed}.items() if value is not None}
        settings = given.pop("settings", [])
        overrides: dict[str, Any] = {}
        for name, value in given.items():
            option = EXPERIMENT_OPTIONS[name]
            overrides |= option.sets(value)
            if option.needs_tcp and given.get("transport", "tcp") != "tcp":
                flag = name.replace("_", "-")
                raise ConfigError(
                    f"--{flag} is for runs that lose nodes and go on: --transport tcp, not {given['transport']}"
                )
            if option.needs_tcp:
                overrides["cluster.transport"] = "tcp"
            if option.instead_of is not None:
                section, _, field = option.instead_of.partition(".")
                table.get(section, {}).pop(field, None)
        codec = overrides.pop("strategy.codec", None)
        for setting in settings:
            path, equals, value = setting.partition("=")
            if not equals or not path.strip():
                raise ConfigError(
                    f"--set {setting!r} should be path.to.field=value, such as training.learning_rate=0.01"
                )
            overrides[path.strip()] = value.strip()
        table = with_overrides(table, overrides)
        if alone:
            _keep_first_host(table.get("cluster", {}))
        return with_codec(build(Experiment, table), codec)


def _keep_first_host(cluster: dict[str, Any]) -> None:
    """Of what is said of each host, leave what is said of the first one; it has nobody to talk to."""
    shares = cluster.get("cpu")
    if shares:
        cluster["cpu"] = shares.partition(",")[0] if isinstance(shares, str) else shares[:1]
    cluster.pop("speeds", None)
    for name in ("hosts", "sites", "between"):
        cluster.get("network", {}).pop(name, None)
