"""The report's tables as CSV, with all digits."""

from __future__ import annotations

import csv
import io
import math
from typing import Any

from minga.report.tables.table import Table

__all__ = ["to_csv"]


def to_csv(table: Table) -> str:
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(table.csv_header())
    for row in table.csv_rows():
        writer.writerow([_plain(value) for value in row])
    return stream.getvalue()


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else "never" if value > 0 else ""
    # A spreadsheet would take text that begins like this as a formula.
    if isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r")):
        return f"'{value}"
    return value
