"""A report inside a notebook, or as sentences where there is none.

minga.show(summary)                        # one run: a summary, what minga.launch gave, or a directory
minga.show("runs/*", target=0.9)           # many, beside each other
"""

from __future__ import annotations

import glob
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from minga.errors import UsageError
from minga.report.document import Report, make_report
from minga.report.pages.html_page import section_html
from minga.report.pages.markup import Markup, bullets, tag

__all__ = ["InlineReport", "show"]

FIRST = ("Time", "Quality")
"""The sections that are shown when nobody asks for others: what a cell has room for."""

_STYLE = """
.minga-report figure { margin: .8em 0; } .minga-report figure svg { max-width: 760px; width: 100%; height: auto; }
.minga-report figcaption, .minga-report small { color: #666; font-size: .88em; } .minga-report small { display: block; }
.minga-report .wide { overflow-x: auto; }
"""


def show(*runs: Any, target: float | None = None, sections: Sequence[str] = FIRST) -> InlineReport:
    """The report on runs, for the last line of a cell; the same as `minga report` writes to files.

    `runs`: summaries, what `minga.launch` gave, directories or patterns such as "runs/*". `sections`: by their titles.
    """
    if not runs:
        raise UsageError("nothing to show: give a summary, or a run's directory such as 'runs/*'")
    made = make_report([path for run in runs for path in _directories(run)], target=target)
    known = [section.title for section in made.sections]
    for name in sections:
        if name not in known and name not in FIRST:
            raise UsageError(f"the report has no section {name!r}; it has: {', '.join(known)}")
    return InlineReport(made, tuple(sections))


class InlineReport:
    """A report that Jupyter shows as HTML and Python as text."""

    def __init__(self, report: Report, sections: Sequence[str]) -> None:
        self.report = report
        self._sections = sections

    def __repr__(self) -> str:
        notes = [f"note: {note}" for note in self.report.notes]
        return "\n".join([self.report.title, *(f"- {sentence}" for sentence in self.report.sentences), *notes])

    def _repr_html_(self) -> str:
        shown = [section for section in self.report.sections if section.title in self._sections]
        return str(
            tag(
                "div",
                tag("style", Markup(_STYLE)),
                tag("h3", self.report.title),
                bullets(self.report.sentences),
                bullets(self.report.notes),
                [section_html(section) for section in shown],
                cls="minga-report",
            )
        )


def _directories(run: Any) -> list[Path]:
    place = str(getattr(run, "run", run))
    if glob.has_magic(place):
        found = sorted(glob.glob(str(Path(place).expanduser())))  # noqa: PTH207  (patterns may be absolute)
        if not found:
            raise UsageError(f"no directory is called {place!r}; the runs are where Experiment(runs=...) says")
        return [Path(path) for path in found]
    return [Path(place).expanduser()]
