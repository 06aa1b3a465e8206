"""The report as Markdown, with its figures beside it as figures/*.svg."""

from __future__ import annotations

import re

from minga.report.document import Report, Section
from minga.report.table import Table

__all__ = ["to_markdown"]


def to_markdown(report: Report) -> str:
    lines = [f"# {_escaped(report.title)}", "", "## What the figures show", ""]
    lines += [f"- {_escaped(sentence)}" for sentence in report.sentences]
    if report.notes:
        lines += ["", "Notes:", "", *(f"- {_escaped(note)}" for note in report.notes)]
    for section in report.sections:
        lines += ["", *_section(section)]
    return "\n".join(lines) + "\n"


def _section(section: Section) -> list[str]:
    lines = [f"## {_escaped(section.title)}"]
    for drawing in section.drawings:
        title = _escaped(drawing.title)
        lines += [
            "",
            f"### {title}",
            "",
            f"![{title}](figures/{drawing.name}.svg)",
            "",
            f"*{_escaped(drawing.caption)}*",
        ]
    for table in section.shown:
        lines += ["", f"### {_escaped(table.title)}", ""]
        lines += [_escaped(table.note), ""] if table.note else []
        lines += _table(table.shown)
    return lines


def _table(table: Table) -> list[str]:
    lines = [_row([column.heading for column in table.columns])]
    lines.append("|" + "|".join("---" if column.text else "---:" for column in table.columns) + "|")
    return lines + [
        _row([f"{value} ({extent})" if extent else value for value, extent in row]) for row in table.cells()
    ]


def _row(cells: list[str]) -> str:
    return "| " + " | ".join(_escaped(cell) for cell in cells) + " |"


def _escaped(text: str) -> str:
    """Labels come from people's files: nothing in them may become a tag, a link, a cell or emphasis."""
    one_line = " ".join(text.split())
    without_tags = one_line.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([\\`*_\[\]|])", r"\\\1", without_tags)
