"""Writes a report: report.html, report.md, tables/*.csv, figures/*.svg.

write_report([Path("runs/20260101-120000-digits-ring-4")], Path("report"))      # report/report.html
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from pydantic_core import from_json, to_json

from minga.errors import UsageError
from minga.report.dataset.groups import Dataset, RunGroup
from minga.report.dataset.stragglers import find_straggler
from minga.report.dataset.targets import Target, reached
from minga.report.document import Report, make_report
from minga.report.pages.html_page import to_html
from minga.report.pages.markdown_page import to_markdown

__all__ = ["save_report", "to_dict", "write_report"]


def write_report(sources: Sequence[Path], out: Path, *, target: float | None = None) -> Path:
    """Report on run directories, or on one study directory, into the directory `out`; the HTML file's path."""
    return save_report(make_report(sources, target=target, out=out), out)


def save_report(report: Report, out: Path) -> Path:
    """Write the files of a report; those of an earlier one that this one does not have are removed."""
    files = {
        out / "report.html": to_html(report),
        out / "report.md": to_markdown(report),
        **{out / "tables" / f"{table.name}.csv": table.to_csv() for table in report.tables if table.rows},
        **{out / "figures" / f"{drawing.name}.svg": drawing.svg for drawing in report.drawings},
    }
    try:
        for folder, ending in ((out / "tables", "csv"), (out / "figures", "svg")):
            folder.mkdir(parents=True, exist_ok=True)
            for old in folder.glob(f"*.{ending}"):
                if old not in files:
                    old.unlink()
        for path, text in files.items():
            path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(
            f"can't write the report to {out} ({error.strerror}); choose another place with --out"
        ) from None
    return out / "report.html"


def to_dict(report: Report, page: Path) -> dict[str, Any]:
    """The report for machines: where it is, what it says, and the numbers of each group."""
    plain: dict[str, Any] = {
        "html": str(page),
        "markdown": str(page.with_suffix(".md")),
        "tables": [str(page.parent / "tables" / f"{table.name}.csv") for table in report.tables if table.rows],
        "figures": [str(page.parent / "figures" / f"{drawing.name}.svg") for drawing in report.drawings],
        "summary": report.sentences,
        "notes": report.notes,
        "target": report.target,
        "failures": [{"run": name, "reason": reason} for name, reason in report.dataset.found.failures],
        "groups": [_group(report.dataset, group, report.target) for group in report.dataset.groups],
    }
    # What is infinite, as the time to a target that was never reached, becomes None.
    return cast(dict[str, Any], from_json(to_json(plain, inf_nan_mode="null")))


def _group(dataset: Dataset, group: RunGroup, target: Target | None) -> dict[str, Any]:
    speedup, energy = dataset.speedup(group), group.energy
    relative = dataset.relative_energy(group) or (None, None)
    return {
        "label": group.label,
        "simulated": group.simulated,
        "nodes": group.nodes,
        "strategy": group.strategy,
        "bandwidth": group.bandwidth,
        "runs": [str(run.directory) for run in group.runs],
        "seconds": group.seconds,
        "samples_per_second": group.samples_per_second,
        "speedup": speedup,
        "efficiency": speedup.divided_by(group.nodes) if speedup else None,
        "metrics": {name: group.metric(name) for name in dataset.metrics()},
        "seconds_to_target": reached(group, target)[0] if target else None,
        "waiting_share": group.share("wait"),
        "straggler": find_straggler(group),
        "energy": {
            "joules": energy.joules,
            "energy_delay_product": energy.joule_seconds,
            "relative_joules": relative[0],
            "relative_energy_delay_product": relative[1],
            "estimated": energy.estimated,
            "source": energy.source,
        }
        if energy
        else None,
    }
