"""From a grid and environments to cells: the experiments that a study compares.

    make_cells({"workload": "digits"}, Batch(policy="total", size=96), {"cluster.nodes": [1, 2, 4]}, ())

Paths are those of an experiment (`cluster.nodes`, `strategy`, `training.seed`), and two more: `codec`, which goes into
whatever strategy the cell has, and `batch.policy`, `batch.size`, `batch.learning_rate`.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from minga.base.config import Config, FieldError, build
from minga.base.units import format_bandwidth, format_duration
from minga.errors import ConfigError
from minga.report.dataset.settings import WHOLE, flatten, text_of
from minga.runs.experiment import Experiment, with_codec, with_overrides
from minga.runs.network import Network
from minga.strategies import Single

__all__ = [
    "Batch",
    "Cell",
    "Environment",
    "label_of",
    "make_cells",
    "make_first_cell",
    "overlay",
    "weights_name",
]

# To set one is to take back the other.
_INSTEAD = {"training.epochs": "training.steps", "training.batch": "training.total_batch"}
_INSTEAD |= {later: earlier for earlier, later in _INSTEAD.items()}
# What makes no difference to a node that is alone.
_BETWEEN_NODES = ("cluster.network.", "strategy.", "codec.")
_PER_NODE_OR_ALL = ("batch.policy", "batch.learning_rate", "training.learning_rate_rule")
_BATCH_IN_TRAINING = ("batch", "total_batch", "learning_rate_rule")


@dataclass(frozen=True, kw_only=True)
class Batch(Config):
    """What a batch is when the number of nodes changes: a study has to say."""

    kind = "batch"

    policy: Literal["per_node", "total"]
    """per_node: each node has `size` samples in a step, so N nodes take steps that are N times larger and fewer.
    total: all nodes together have `size`, so more nodes do the same steps, divided."""

    size: int
    """Samples, of each node or of all."""

    learning_rate: Literal["constant", "linear", "sqrt"] = "constant"
    """How the learning rate grows with the batch of all nodes, relative to that of one node alone."""

    def check(self) -> None:
        if self.size < 1:
            raise FieldError(("size",), f"should be at least 1, not {self.size}")

    def training(self) -> dict[str, Any]:
        """The fields of `Training` that say the same."""
        place = "total_batch" if self.policy == "total" else "batch"
        return {place: self.size, "learning_rate_rule": self.learning_rate}


@dataclass(frozen=True, kw_only=True)
class Environment(Config):
    """A cell with a name of its own, for studies that are no grid. It is taken literally, also with one node."""

    kind = "environment"

    label: str
    """What reports call it."""

    overrides: dict[str, Any] = dataclasses.field(default_factory=dict)
    """Dotted paths and values, on top of the study's experiment. In TOML they stand beside the label."""

    @classmethod
    def from_value(cls, value: Any) -> Environment:
        if isinstance(value, Mapping) and "overrides" not in value:
            rest = {key: item for key, item in value.items() if key != "label"}
            given = {"label": value["label"]} if "label" in value else {}
            return build(cls, {**given, "overrides": flatten(rest)})
        return super().from_value(value)


@dataclass(frozen=True)
class Cell:
    """One experiment of a study."""

    label: str
    values: Mapping[str, Any]
    """What distinguishes it from other cells, by path. What makes no difference to it is left out."""
    environment: str | None
    """The label of its environment; None for a cell of the grid."""
    experiment: Experiment
    """Of repetition 0."""

    @cached_property
    def identity(self) -> str:
        """The same for the same experiment, wherever its runs go."""
        usual = tomllib.loads(Experiment(workload="").to_toml())
        whole = tomllib.loads(dataclasses.replace(self.experiment, runs="runs").to_toml())
        # Without what has its default value, so that a field that comes later changes no identity of today.
        canonical = json.dumps(_difference(whole, usual), sort_keys=True)
        return hashlib.sha256(canonical.encode()).hexdigest()[:16]

    def for_repetition(self, repetition: int, runs: Path, *, weights: Path | None = None) -> Experiment:
        """What to run: each repetition has a seed of its own. `weights`: where those lie that all begin with."""
        training = dataclasses.replace(self.experiment.training, seed=self.experiment.training.seed + repetition)
        if weights is not None:
            training = dataclasses.replace(training, start_from=str(weights))
        return dataclasses.replace(self.experiment, training=training, runs=str(runs))


def make_cells(
    experiment: Mapping[str, Any],
    batch: Batch | None,
    grid: Mapping[str, Sequence[Any]],
    environments: Sequence[Environment],
) -> list[Cell]:
    """All cells, in the order in which they are written; raises `FieldError` for one that can't work."""
    base = _base(experiment, batch)
    cells: dict[str, Cell] = {}
    if grid or not environments:
        for combination in itertools.product(*grid.values()):
            values = dict(zip(grid, combination, strict=True))
            cell = _make_cell(base, values, ("grid",), None)
            # With one node many cells of a grid are the same: it is run once and counts for all.
            cells.setdefault(cell.identity, cell)
    for index, environment in enumerate(environments):
        place = ("environment", str(index))
        cell = _make_cell(base, environment.overrides, place, environment.label)
        if cell.identity in cells:
            raise FieldError(place, f"{environment.label!r} is the same experiment as {cells[cell.identity].label!r}")
        if environment.label in {other.label for other in cells.values()}:
            raise FieldError((*place, "label"), f"there are two cells with the label {environment.label!r}")
        cells[cell.identity] = cell
    return list(cells.values())


def make_first_cell(experiment: Mapping[str, Any], batch: Batch | None, overrides: Mapping[str, Any]) -> Cell:
    """The run that is made before all others, which begin with its weights."""
    return _make_cell(_base(experiment, batch), overrides, ("pretraining",), "pretraining")


def weights_name(first: Cell) -> str:
    """Of the file in the study's directory; another one for what is trained otherwise."""
    return f"pretrained-{first.identity}.safetensors"


def _base(experiment: Mapping[str, Any], batch: Batch | None) -> dict[str, Any]:
    return dict(experiment) | ({} if batch is None else {"batch": dataclasses.asdict(batch)})


def _make_cell(
    base: Mapping[str, Any], values: Mapping[str, Any], place: tuple[str, ...], environment: str | None
) -> Cell:
    label = environment or label_of(values)
    try:
        table = overlay(base, values)
        alone = bool(values) and environment is None and table.get("cluster", {}).get("nodes", 1) == 1
        if alone:
            table = {key: value for key, value in table.items() if key not in WHOLE}
            shown = {path: value for path, value in values.items() if not f"{path}.".startswith(_BETWEEN_NODES)}
            values = {path: value for path, value in shown.items() if path not in _PER_NODE_OR_ALL}
            label = label_of(values) if "cluster.nodes" in values else label_of({"cluster.nodes": 1, **values})
        made = _experiment(table)
    except FieldError as error:
        message = f"the cell {label!r} can't work: {error}" if label else str(error)
        raise FieldError(_written_at(error.path, values, place), message) from None
    if alone:
        made = _alone(made)
    label = label or label_of({"cluster.nodes": made.cluster.nodes, "strategy": made.chosen_strategy})
    values = {path: text_of(value) if isinstance(value, Mapping) else value for path, value in values.items()}
    # The strategy that is meant is written down: another default of a later version would be another experiment.
    return Cell(label, values, environment, dataclasses.replace(made, strategy=made.chosen_strategy))


def _experiment(table: Mapping[str, Any]) -> Experiment:
    rest = {key: value for key, value in table.items() if key not in ("codec", "batch")}
    training = dict(rest.get("training", {}))
    said = [name for name in _BATCH_IN_TRAINING if name in training]
    if "batch" in table:
        if said:
            raise FieldError(("training", said[0]), "is said by [batch] already; give one of the two")
        rest["training"] = training | _batch(table["batch"]).training()
    elif not {"batch", "total_batch"} & set(said):
        raise FieldError(
            ("batch",),
            'a study says what a batch is when nodes are added: [batch] with policy = "total" (all nodes together) '
            'or "per_node", and size',
        )
    if "runs" in rest:
        raise FieldError(("runs",), "runs go into the study's own directory (--out); leave it out")
    return with_codec(build(Experiment, rest), table.get("codec"))


def _batch(values: Mapping[str, Any]) -> Batch:
    try:
        return build(Batch, values)
    except FieldError as error:
        raise error.inside("batch") from None


def _alone(experiment: Experiment) -> Experiment:
    """One node: nobody to talk to, so a host without limits on its cable, and its batch is everybody's."""
    training, network = experiment.training, experiment.cluster.network
    return dataclasses.replace(
        experiment,
        strategy=Single(),
        cluster=dataclasses.replace(experiment.cluster, network=None if network is None else Network()),
        training=dataclasses.replace(
            training, batch=training.batch or training.total_batch, total_batch=None, learning_rate_rule="constant"
        ),
    )


def _written_at(path: tuple[str, ...], values: Mapping[str, Any], place: tuple[str, ...]) -> tuple[str, ...]:
    """Where in the study's file the reason for an error is written."""
    training_batch = path[:1] == ("training",) and path[1:2] and path[1] in _BATCH_IN_TRAINING
    for axis in values:
        parts = tuple(axis.split("."))
        if parts == path[: len(parts)] or path == parts[: len(path)] or (training_batch and parts[0] == "batch"):
            return (*place, *parts)
    return path if path[:1] == ("batch",) else ("experiment", *path)


def label_of(values: Mapping[str, Any]) -> str:
    """What people call a cell, from paths and values: `4 nodes, 10mbit, native`."""
    return ", ".join(_words(path, value) for path, value in values.items())


def _words(path: str, value: Any) -> str:
    text = text_of(value)
    match path:
        case "cluster.nodes":
            return f"{text} node" if value == 1 else f"{text} nodes"
        case "strategy" | "workload":
            return text
        case "cluster.network.bandwidth":
            return text if isinstance(value, str) else format_bandwidth(value)
        case "cluster.network.delay":
            return f"{text if isinstance(value, str) else format_duration(value)} delay"
        case "batch.policy":
            return {"per_node": "batch of each node", "total": "batch of all nodes"}.get(text, text)
    section, _, rest = path.partition(".")
    name = rest if section in ("cluster", "training") else path
    return f"{name.replace('.', ' ').replace('_', ' ')} {text}"


def overlay(table: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of a table with values at dotted paths replaced; what can't stand beside them is taken out."""
    try:
        changed = with_overrides(table, overrides)
    except FieldError:
        raise
    except ConfigError as error:
        raise FieldError((), str(error)) from None
    for path in overrides:
        if (other := _INSTEAD.get(path)) and other not in overrides:
            section, _, name = other.partition(".")
            changed[section].pop(name, None)
    return changed


def _difference(table: Mapping[str, Any], usual: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: _difference(value, usual.get(key, {})) if isinstance(value, Mapping) else value
        for key, value in table.items()
        if key not in usual or value != usual[key]
    }
