"""A report's content, before it becomes a page: sentences, and sections with figures and tables.

report = make_report([Path("studies/bandwidth")], target=0.9)
report.sentences, [section.title for section in report.sections]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from minga.report.dataset.groups import Dataset, make_dataset
from minga.report.dataset.settings import shown_value
from minga.report.dataset.sources import find_runs
from minga.report.dataset.targets import Target, choose_target
from minga.report.figures import curves, intervals, phases, resources, scaling
from minga.report.figures.style import Drawing, house_style
from minga.report.sentences import sentences
from minga.report.tables import circumstances, results, usage
from minga.report.tables.table import Table

__all__ = ["Report", "Section", "make_report"]


@dataclass(frozen=True)
class Section:
    """A heading with what belongs under it."""

    title: str
    drawings: list[Drawing] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    folded: bool = False
    """Whether its tables are closed at first: long ones that few people read."""

    @property
    def anchor(self) -> str:
        return "".join(letter if letter.isalnum() else "-" for letter in self.title.lower())


@dataclass(frozen=True)
class Report:
    """Everything that pages are made from."""

    title: str
    dataset: Dataset
    target: Target | None
    sentences: list[str]
    notes: list[str]
    sections: list[Section]

    @property
    def drawings(self) -> list[Drawing]:
        return [drawing for section in self.sections for drawing in section.drawings]

    @property
    def tables(self) -> list[Table]:
        return [table for section in self.sections for table in section.tables]


def make_report(sources: Sequence[Path], *, target: float | None = None, command: Sequence[str] = ()) -> Report:
    """Read the runs, and work out what there is to see; sections without anything in them are left out."""
    found = find_runs(sources)
    dataset = make_dataset(found)
    chosen = choose_target(dataset, target)
    with house_style():
        sections = _sections(dataset, chosen, command)
    kept = [section for section in sections if section.drawings or any(table.rows for table in section.tables)]
    return Report(_title(dataset), dataset, chosen, sentences(dataset, chosen), found.notes, kept)


def _sections(dataset: Dataset, chosen: Target | None, command: Sequence[str]) -> list[Section]:
    over_nodes = scaling.scaling(dataset)
    return [
        Section("Time", over_nodes or intervals.times(dataset), [results.group_table(dataset)]),
        Section("Quality", curves.curves(dataset, chosen), _quality_tables(dataset)),
        Section(
            "Time to a target",
            intervals.target_times(dataset, chosen) if chosen else [],
            [results.target_table(dataset, chosen)] if chosen else [],
        ),
        Section("Where the time goes", phases.phases(dataset), [usage.phase_table(dataset)], folded=True),
        Section("Bytes and messages", intervals.traffic(dataset), _there(usage.traffic_table(dataset)), folded=True),
        Section("Processor, memory, network", resources.resources(dataset), _there(usage.usage_table(dataset)), True),
        Section("Power and energy", _energy(dataset), _there(usage.energy_table(dataset))),
        Section("Links", [], _there(usage.link_table(dataset)), folded=True),
        Section(
            "Settings and runs",
            [],
            _there(
                circumstances.failure_table(dataset),
                circumstances.difference_table(dataset),
                circumstances.common_table(dataset),
                results.run_table(dataset),
            ),
            folded=True,
        ),
        Section("How this report was made", [], [circumstances.made_table(command)]),
    ]


def _energy(dataset: Dataset) -> list[Drawing]:
    return [*resources.energy(dataset), *resources.power(dataset)]


def _quality_tables(dataset: Dataset) -> list[Table]:
    return [*results.curve_tables(dataset), *results.metric_tables(dataset)]


def _there(*tables: Table | None) -> list[Table]:
    return [table for table in tables if table is not None]


def _title(dataset: Dataset) -> str:
    if dataset.found.study is not None:
        return f"Study {dataset.found.study.resolve().name}"
    workloads = sorted({shown_value("workload", group.settings["workload"]) for group in dataset.groups})
    if len(dataset.groups) == 1:
        return f"Report: {dataset.groups[0].label}"
    return f"Report: {', '.join(workloads)}, {len(dataset.groups)} groups of runs"
