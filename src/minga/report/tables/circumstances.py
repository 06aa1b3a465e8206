"""Under which circumstances: settings, failures, and how the report was made."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from collections.abc import Sequence

from minga._version import __version__
from minga.report.dataset.groups import Dataset
from minga.report.dataset.settings import shown_value
from minga.report.tables.table import Column, Table

__all__ = ["common_table", "difference_table", "failure_table", "made_table"]


def common_table(dataset: Dataset) -> Table:
    settings = dataset.groups[0].settings
    varying = {
        path
        for group in dataset.groups
        for path in {*settings, *group.settings}
        if repr(group.settings.get(path)) != repr(settings.get(path))
    }
    shown = [(path, settings[path]) for path in sorted(settings) if path not in varying]
    rows = [[path, shown_value(path, value) or "none"] for path, value in shown]
    columns = [Column("setting", "setting", text=True), Column("value", "value", text=True)]
    return Table("settings-common", "Settings that all groups share", columns, rows)


def difference_table(dataset: Dataset) -> Table | None:
    if len(dataset.groups) < 2 or not dataset.differing:
        return None
    columns = [Column("group", "group", text=True), *(Column(path, path, text=True) for path in dataset.differing)]
    rows = [
        [group.label, *(_value(path, group.settings.get(path)) for path in dataset.differing)]
        for group in dataset.groups
    ]
    return Table("settings-different", "Settings that differ", columns, rows)


def _value(path: str, value: object) -> str:
    return "-" if value is None else shown_value(path, value) or "none"


def failure_table(dataset: Dataset) -> Table | None:
    if not dataset.found.failures:
        return None
    columns = [Column("run", "run", text=True), Column("reason", "reason", text=True)]
    return Table("failures", "Runs that can't be counted", columns, [list(each) for each in dataset.found.failures])


def made_table(command: Sequence[str]) -> Table:
    rows = [
        ["command", " ".join(command)],
        ["minga", __version__],
        ["torch", _version("torch")],
        ["matplotlib", _version("matplotlib")],
        ["python", platform.python_version()],
        ["system", f"{platform.system()} {platform.release()}, {platform.machine()}"],
        ["processor cores", str(os.cpu_count())],
    ]
    columns = [Column("what", "what", text=True), Column("value", "value", text=True)]
    note = "Of the machine that made this report; runs that were copied from elsewhere may have been made on another."
    return Table("made", "How this report was made", columns, rows, note)


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"
