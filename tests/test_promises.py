"""docs/testing.md says which tests show what is promised: they exist, and no fault has been forgotten."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "testing.md").read_text()
_ID = re.compile(r"`([\w/]+\.py)((?:::\w+)*)`")


def rows(text: str) -> list[list[str]]:
    """Of all tables, without their heads."""
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:1] == "|"]
    return [cells for cells in lines if not set(cells[0]) <= {"-"} and cells[1] != "tests"]


def exists(path: str, names: list[str]) -> bool:
    file = next((place / path for place in (ROOT / "tests", ROOT / "src" / "minga") if (place / path).is_file()), None)
    if file is None:
        return False
    body = ast.parse(file.read_text()).body
    for name in names:
        found = [each for each in body if isinstance(each, ast.ClassDef | ast.FunctionDef) and each.name == name]
        if not found:
            return False
        body = found[0].body
    return True


def test_each_promise_names_tests_that_exist() -> None:
    table = rows(PAGE.split("## Promises and their tests")[1])
    assert len(table) > 30
    for promise, shown_by in table:
        ids = _ID.findall(shown_by)
        assert ids, f"no test shows that {promise}"
        missing = [path + names for path, names in ids if not exists(path, names.split("::")[1:])]
        assert not missing, f"{promise}: there is no {missing}"


def test_each_fault_has_tests() -> None:
    promised = (ROOT / "docs" / "faults.md").read_text().split("## What is promised")[1].split("\n## ")[0]
    faults = [cells[0] for cells in rows(promised) if cells[0] != "fault"]
    assert len(faults) >= 10
    tested = [cells[0] for cells in rows(PAGE)]
    assert not [fault for fault in faults if fault not in tested]
