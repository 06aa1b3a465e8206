"""A report's content, before it becomes a page: sentences, and sections with figures and tables.

report = make_report([Path("studies/bandwidth")], target=0.9)
report.sentences, [section.title for section in report.sections]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from minga.report import tables
from minga.report.dataset.groups import Dataset, make_dataset
from minga.report.dataset.settings import shown_value
from minga.report.dataset.sources import find_runs
from minga.report.dataset.targets import Target, choose_target
from minga.report.figures import curves, intervals, phases, resources, scaling
from minga.report.figures.style import Drawing, house_style
from minga.report.sentences import sentences
from minga.report.table import Table

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
    def shown(self) -> list[Table]:
        """The tables that are on pages; others are files alone."""
        return [table for table in self.tables if table.rows and not table.only_csv]

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


def make_report(sources: Sequence[Path], *, target: float | None = None, out: Path | None = None) -> Report:
    """Read the runs, and work out what there is to see; sections without anything in them are left out.

    `out`: where it will be saved, for the command that it says it is made by.
    """
    command = ["minga", "report", *(str(source) for source in sources), "--out", str(out)] if out is not None else []
    command += ["--target", f"{target:g}"] if command and target is not None else []
    found = find_runs(sources)
    dataset = make_dataset(found)
    chosen = choose_target(dataset, target)
    with house_style():
        sections = _sections(dataset, chosen, command)
    kept = [section for section in sections if section.drawings or any(table.rows for table in section.tables)]
    return Report(_title(dataset), dataset, chosen, sentences(dataset, chosen), found.notes, kept)


def _sections(dataset: Dataset, target: Target | None, command: Sequence[str]) -> list[Section]:
    return [
        Section("Time", scaling.scaling(dataset) or intervals.times(dataset), [tables.group_table(dataset)]),
        Section(
            "Quality",
            curves.curves(dataset, target),
            [*tables.curve_tables(dataset), *tables.metric_tables(dataset)],
        ),
        Section(
            "Time to a target",
            intervals.target_times(dataset, target) if target else [],
            [tables.target_table(dataset, target)] if target else [],
        ),
        Section("Where the time goes", phases.phases(dataset), [tables.phase_table(dataset)], folded=True),
        Section("Bytes and messages", intervals.traffic(dataset), [tables.traffic_table(dataset)], folded=True),
        Section("Processor, memory, network", resources.resources(dataset), [tables.usage_table(dataset)], folded=True),
        Section(
            "Power and energy",
            [*resources.energy(dataset), *resources.power(dataset)],
            [tables.energy_table(dataset)],
        ),
        Section("Links", [], [tables.link_table(dataset)], folded=True),
        Section(
            "Settings and runs",
            [],
            [
                tables.failure_table(dataset),
                tables.difference_table(dataset),
                tables.common_table(dataset),
                tables.run_table(dataset),
            ],
            folded=True,
        ),
        Section("How this report was made", [], [tables.made_table(command)]),
    ]


def _title(dataset: Dataset) -> str:
    if dataset.found.study is not None:
        return f"Study {dataset.found.study.resolve().name}"
    workloads = sorted({shown_value("workload", group.settings["workload"]) for group in dataset.groups})
    if len(dataset.groups) == 1:
        return f"Report: {dataset.groups[0].label}"
    return f"Report: {', '.join(workloads)}, {len(dataset.groups)} groups of runs"
