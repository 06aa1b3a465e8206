"""A study: one question, the cells that answer it, and how they are measured. In Python or in TOML.

# nodes.toml
name = "nodes"
question = "Do more nodes help?"
repetitions = 3

[experiment]
workload = "digits"

[batch]
policy = "total"
size = 96

[grid]
cluster.nodes = [1, 2, 4]
strategy = ["ring", "ps:mode=async"]
"""

from __future__ import annotations

import dataclasses
import random
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

import tomli_w
from pydantic import BeforeValidator

from minga.base.config import Config, FieldError, build
from minga.base.toml_files import at_its_place, read_toml
from minga.errors import unknown
from minga.report.dataset.settings import flatten
from minga.study.cells import Batch, Cell, Environment, make_cells, make_first_cell, overlay, weights_name

__all__ = ["CellRun", "Study", "load_study", "shipped_studies"]

_SHIPPED = Path(__file__).parent / "shipped"


def _axes(grid: Any) -> Any:
    """Check the axes of a grid, each with an error of its own."""
    if not isinstance(grid, Mapping):
        return grid
    axes = flatten(grid)
    for path, values in axes.items():
        place = tuple(path.split("."))
        if not isinstance(values, list | tuple) or not values:
            raise FieldError(place, f"should be a list of values, such as [1, 2], not {values!r}")
        twice = [value for index, value in enumerate(values) if value in values[:index]]
        if twice:
            raise FieldError(place, f"has {twice[0]!r} twice; how often each cell is run is said by repetitions")
    return axes


@dataclass(frozen=True)
class CellRun:
    """One run of a study."""

    cell: Cell
    repetition: int

    @property
    def identity(self) -> tuple[str, int]:
        return self.cell.identity, self.repetition

    def __str__(self) -> str:
        return f"{self.cell.label}, repetition {self.repetition + 1}"


@dataclass(frozen=True, kw_only=True)
class Study(Config):
    """One question, and the runs that answer it. All cells are checked when it is made."""

    kind = "study"

    name: str
    """Of its directory: small letters, digits, hyphens."""

    title: str = ""
    """For reports (default: the name)."""

    question: str
    """One sentence: what the study shows."""

    experiment: dict[str, Any]
    """What all cells have in common: the table of an experiment; also `codec`, for whatever strategy a cell has."""

    batch: Batch | None = None
    """What a batch is when nodes are added (None: `experiment`, the grid or the environments say it)."""

    grid: Annotated[dict[str, Any], BeforeValidator(_axes)] = field(default_factory=dict)
    """Paths of an experiment and lists of values: every combination is a cell."""

    environment: tuple[Environment, ...] = ()
    """Cells with names of their own, besides those of the grid."""

    pretraining: dict[str, Any] = field(default_factory=dict)
    """Paths in which a run differs from `experiment` that is made once, before all others, which begin with its
    weights (empty: they begin with random ones)."""

    repetitions: int = 3
    """How often each cell is run; repetition r (from 0) has the experiment's seed + r."""

    warm_up: int = 0
    """Runs that are thrown away before the first measured one."""

    cool_down_seconds: float = 0.0
    """Rest between two runs, for machines that get slower when they are hot."""

    order_seed: int = 0
    """Decides in which order the cells of each repetition are run."""

    quick: dict[str, Any] = field(default_factory=dict)
    """Fields of the study with other values for `--quick`; tables are merged."""

    def check(self) -> None:
        if not re.fullmatch(r"[a-z0-9][a-z0-9-]*", self.name):
            raise FieldError(("name",), f"should be small letters, digits and hyphens, not {self.name!r}")
        for name, least in {"repetitions": 1, "warm_up": 0, "cool_down_seconds": 0, "order_seed": 0}.items():
            if not least <= getattr(self, name) < 1e6:
                raise FieldError((name,), f"should be at least {least} and below a million, not {getattr(self, name)}")
        if not self.title:
            object.__setattr__(self, "title", self.name)
        assert self.cells

    @cached_property
    def cells(self) -> list[Cell]:
        """What is compared, in the order in which it is written."""
        experiment = self.experiment
        if self.pretrained is not None:
            # Whoever begins with other weights is another experiment.
            experiment = overlay(experiment, {"training.start_from": weights_name(self.pretrained)})
        return make_cells(experiment, self.batch, self.grid, self.environment)

    @cached_property
    def pretrained(self) -> Cell | None:
        """What is trained first, if anything is."""
        if not self.pretraining:
            return None
        if "training.start_from" in flatten(self.experiment):
            raise FieldError(("pretraining",), "experiment.training.start_from says already where weights come from")
        return make_first_cell(self.experiment, self.batch, flatten(self.pretraining))

    @cached_property
    def jobs(self) -> list[CellRun]:
        """All runs, in their order.

        Repetition by repetition, each with its cells shuffled: a machine that gets slower in the course of the study
        then does so for all cells, instead of looking like an effect of those that come last.
        """
        jobs = []
        for repetition in range(self.repetitions):
            shuffled = list(self.cells)
            random.Random(f"{self.order_seed}/{repetition}").shuffle(shuffled)
            jobs += [CellRun(cell, repetition) for cell in shuffled]
        return jobs

    def quickened(self) -> Study:
        """The study with its quick table applied, under a name of its own."""
        table = {entry.name: getattr(self, entry.name) for entry in dataclasses.fields(self)}
        for key, value in self.quick.items():
            if key not in table or key in ("name", "quick"):
                choices = [name for name in table if name not in ("name", "quick")]
                raise FieldError(("quick", key), str(unknown("key", key, choices)))
            if isinstance(value, Mapping):
                value = self._merged(key, value)
            table[key] = value
        quick = {"name": f"{self.name}-quick", "title": f"{table['title']} (quick)", "quick": {}}
        return build(Study, table | quick)

    def _merged(self, key: str, value: Mapping[str, Any]) -> dict[str, Any]:
        if key == "experiment":
            return overlay(self.experiment, flatten(value))
        if key == "batch":
            return {**(dataclasses.asdict(self.batch) if self.batch else {}), **value}
        if key in ("grid", "pretraining"):
            return {**flatten(getattr(self, key)), **flatten(value)}
        return dict(value)

    def to_toml(self) -> str:
        """The study as TOML that reads back to an equal one."""
        table = {entry.name: getattr(self, entry.name) for entry in dataclasses.fields(self)}
        table["environment"] = [{"label": each.label, **each.overrides} for each in self.environment]
        table["batch"] = None if self.batch is None else dataclasses.asdict(self.batch)
        given = {key: value for key, value in table.items() if value not in (None, {}, [])}
        return tomli_w.dumps(given)


def shipped_studies() -> dict[str, Path]:
    """Name and file of each study that comes with Minga."""
    return {path.stem: path for path in sorted(_SHIPPED.glob("*.toml"))}


def load_study(path_or_name: Path | str, *, quick: bool = False) -> Study:
    """A study from its TOML file or by its shipped name; errors name the line."""
    path = Path(path_or_name)
    if path.suffix != ".toml":
        if str(path_or_name) not in shipped_studies():
            raise unknown("study", str(path_or_name), shipped_studies(), "A study of your own: file.toml.")
        path = shipped_studies()[str(path_or_name)]
    text, table = read_toml(path)
    try:
        study = build(Study, table)
    except FieldError as error:
        raise at_its_place(error, path, text) from None
    try:
        quickened = study.quickened()  # also without --quick: a wrong table should not wait for the day it is used
    except FieldError as error:
        raise at_its_place(error, path, text, tables=("quick",)) from None
    return quickened if quick else study
