"""Writes a report: report.html, report.md, tables/*.csv, figures/*.svg.

write_report([Path("runs/20260101-120000-digits-ring-4")], Path("report"))      # report/report.html
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from minga.errors import UsageError
from minga.report.document import Report, make_report
from minga.report.pages.csv_files import to_csv
from minga.report.pages.html_page import to_html
from minga.report.pages.markdown_page import to_markdown

__all__ = ["save_report", "write_report"]


def write_report(sources: Sequence[Path], out: Path, *, target: float | None = None) -> Path:
    """Report on run directories, or on one study directory, into the directory `out`; the HTML file's path."""
    command = ["minga", "report", *(str(source) for source in sources), "--out", str(out)]
    command += ["--target", f"{target:g}"] if target is not None else []
    return save_report(make_report(sources, target=target, command=command), out)


def save_report(report: Report, out: Path) -> Path:
    """Write the files of a report; those of an earlier one that this one does not have are removed."""
    files = {
        out / "report.html": to_html(report),
        out / "report.md": to_markdown(report),
        **{out / "tables" / f"{table.name}.csv": to_csv(table) for table in report.tables if table.rows},
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
