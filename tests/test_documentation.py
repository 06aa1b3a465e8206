"""What Markdown pages say of files and names is true: links, anchors, paths, and names that begin with `minga.`

docs/metrics.md:6: there is no tests/evaluate
"""

from __future__ import annotations

import functools
import importlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "minga"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted(ROOT.glob("docs/**/*.md"))]
ARCHITECTURE = ROOT / "docs" / "architecture.md"

_BLOCK = re.compile(r"^ *```.*?^ *```[^\n]*$", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"`((?:[^`\n]|\n(?!\n))+)`")
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#{1,6} +(.+?) *$", re.MULTILINE)
_IN_PROJECT = re.compile(r"(?<![\w./~-])(?:src|tests|docs|benchmarks|examples)/[\w./*-]*[\w*]")
_MODULE_FILE = re.compile(r"(?<![\w./~-])(?:[\w-]+/)+[\w-]+\.py\b")
_PATH = re.compile(r"(?:[\w-]+/)+(?:[\w-]+(?:\.py)?)?|[\w-]+\.py")
_NAME = re.compile(r"(?<![\w./-])minga(?:\.[A-Za-z_]\w*)+")
_IMPORT = re.compile(r"^ *(?:from (minga[\w.]*) import ([\w, ]+)|import (minga[\w.]*)) *(?:#.*)?$", re.MULTILINE)
# A room's own files stand without their folder in its row of the table.
_ROOM = re.compile(r"^\| \d+ \| `(\w+)/` \|", re.MULTILINE)


def without_blocks(text: str) -> str:
    """Line for line the same, blocks of code left empty."""
    return _BLOCK.sub(lambda block: "\n" * block[0].count("\n"), text)


def place(page: Path, text: str, at: int) -> str:
    return f"{page.relative_to(ROOT)}:{text.count(chr(10), 0, at) + 1}"


def code_of(page: Path) -> Iterator[tuple[str, str, str]]:
    """What stands in backticks: where, what, and the whole line."""
    text = without_blocks(page.read_text())
    for found in _CODE.finditer(text):
        line = text[text.rfind("\n", 0, found.start()) + 1 :].partition("\n")[0]
        yield place(page, text, found.start()), " ".join(found[1].split()), line


@functools.cache
def anchors(page: Path) -> set[str]:
    """Of a page's headings, as GitHub makes them."""
    found: set[str] = set()
    for heading in _HEADING.findall(without_blocks(page.read_text())):
        words = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).lower()
        plain = re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
        number = next(number for number in range(99) if (f"{plain}-{number}" if number else plain) not in found)
        found.add(f"{plain}-{number}" if number else plain)
    return found


def resolves(name: str) -> bool:
    """Whether it is a module, or something in one."""
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        try:
            thing = importlib.import_module(".".join(parts[:end]))
        except ModuleNotFoundError as error:
            if not (error.name or "").startswith("minga"):
                raise
            continue
        for part in parts[end:]:
            if not hasattr(thing, part):
                return False
            thing = getattr(thing, part)
        return True
    return False


def is_there(path: str, *folders: Path) -> bool:
    return any(next(folder.glob(path), None) is not None for folder in folders)


pages = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


@pages
def test_links_lead_somewhere(page: Path) -> None:
    text, wrong = without_blocks(page.read_text()), []
    for found in _LINK.finditer(text):
        target, _, anchor = found[1].partition("#")
        if ":" in target:  # elsewhere: https:
            continue
        file = (page.parent / target).resolve() if target else page
        if not file.exists():
            wrong.append(f"{place(page, text, found.start())}: there is no {target}")
        elif anchor and anchor not in anchors(file):
            wrong.append(f"{place(page, text, found.start())}: {file.name} has no heading #{anchor}")
    assert not wrong, "\n".join(wrong)


@pages
def test_files_of_the_project_are_there(page: Path) -> None:
    wrong = []
    for where, code, line in code_of(page):
        folders = [ROOT, PACKAGE, ROOT / "tests", *(PACKAGE / room for room in _ROOM.findall(line))]
        wrong += [f"{where}: there is no {path}" for path in _IN_PROJECT.findall(code) if not is_there(path, ROOT)]
        wrong += [
            f"{where}: there is no {path}, neither in the package nor in its tests"
            for path in _MODULE_FILE.findall(code)
            if not is_there(path, *folders)
        ]
    assert not wrong, "\n".join(wrong)


def test_the_architecture_names_files_of_the_package() -> None:
    wrong = []
    for where, code, line in code_of(ARCHITECTURE):
        if _PATH.fullmatch(code):
            folders = [PACKAGE, ROOT, *(PACKAGE / room for room in _ROOM.findall(line))]
            path = code.rstrip("/")
            if not is_there(path, *folders) and not is_there(f"{path}.py", *folders):
                wrong.append(f"{where}: there is no {code} in src/minga")
    assert not wrong, "\n".join(wrong)


@pages
def test_names_of_the_package_can_be_resolved(page: Path) -> None:
    wrong = [
        f"{where}: there is no {name}"
        for where, code, _ in code_of(page)
        for name in _NAME.findall(code)
        if not name.endswith(".py") and not resolves(name)
    ]
    text = page.read_text()
    for found in _IMPORT.finditer(text):
        module, names = found[1] or found[3], re.findall(r"\w+", found[2] or "")
        wrong += [
            f"{place(page, text, found.start())}: there is no {name}"
            for name in (f"{module}.{each}" for each in names or [""])
            if not resolves(name.rstrip("."))
        ]
    assert not wrong, "\n".join(wrong)


def test_pages_are_looked_at() -> None:
    """So that an expression that matches nothing any more does not look well."""
    text = "see `tests/nothing`, `strategies/delta.py`\n```\n`tests/no`\n```\n[x](no.md) `minga.testing.worlds.f()`\n"
    assert without_blocks(text).count("\n") == text.count("\n")
    codes = _CODE.findall(without_blocks(text))
    assert [_IN_PROJECT.findall(code) for code in codes] == [["tests/nothing"], [], []]
    assert [_MODULE_FILE.findall(code) for code in codes] == [[], ["strategies/delta.py"], []]
    assert [_NAME.findall(code) for code in codes] == [[], [], ["minga.testing.worlds.f"]]
    assert _LINK.findall(without_blocks(text)) == ["no.md"]
    assert resolves("minga.testing.worlds.train_without") and not resolves("minga.testing.worlds.f")
    assert "who-gets-in" in anchors(ROOT / "docs" / "transport.md")
    assert sum(1 for _ in code_of(ARCHITECTURE)) > 150
