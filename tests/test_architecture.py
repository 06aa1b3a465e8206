"""The shape of the code: which package may import which, and what is public."""

from __future__ import annotations

import ast
import functools
import importlib
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import minga

SOURCE = Path(minga.__file__).parent

# A room may import from its own line and from those above it.
LAYERS = [
    ["errors", "_version"],
    ["base"],
    ["net", "measure"],
    ["codecs"],
    ["comm"],
    ["model"],
    ["data", "metrics"],
    ["strategies"],
    ["runs"],
    ["membership"],
    ["training"],
    ["lab"],
    ["launch"],
    ["keras", "workloads"],
    ["report"],
    ["engines"],
    ["simulate"],
    ["plan"],
    ["study"],
    ["testing"],
    ["cli"],
    ["__init__", "__main__"],
]
LINE_OF = {room: line for line, rooms in enumerate(LAYERS) for room in rooms}
# Arrows that still point back.
DEBTS = {
    ("metrics", "runs"),
    ("runs", "keras"),
    ("runs", "workloads"),
}


@functools.cache
def imports() -> list[tuple[Path, str, str]]:
    """File, importing part, imported part."""
    found = []
    for path in sorted(SOURCE.rglob("*.py")):
        part = path.relative_to(SOURCE).parts[0].removesuffix(".py")
        for node in ast.walk(ast.parse(path.read_text())):
            names = []
            if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("minga"):
                names = [node.module]
            elif isinstance(node, ast.Import):
                names = [alias.name for alias in node.names if alias.name.startswith("minga")]
            for name in names:
                imported = name.split(".")[1] if "." in name else "__init__"
                if imported != part:
                    found.append((path, part, imported))
    return found


def test_every_room_has_its_line() -> None:
    rooms = {path.relative_to(SOURCE).parts[0].removesuffix(".py") for path in SOURCE.rglob("*.py")}
    assert rooms <= set(LINE_OF)


def test_arrows_point_up() -> None:
    wrong = [
        f"{path.relative_to(SOURCE)} imports {to}"
        for path, start, to in imports()
        if LINE_OF[to] > LINE_OF[start] and (start, to) not in DEBTS
    ]
    assert not wrong


def test_debts_that_are_paid_are_not_listed() -> None:
    assert {(start, to) for _, start, to in imports() if LINE_OF[to] > LINE_OF[start]} == DEBTS


def test_strategies_do_not_know_torch_distributed_nor_the_time() -> None:
    # What servers keep on disk is read after a crash, and is no part of an algorithm.
    on_disk = {"disk_log.py", "files.py", "recovery.py"}
    for path in (SOURCE / "strategies").rglob("*.py"):
        if path.name in on_disk and path.parent.name == "parameter_server":
            continue
        text = path.read_text()
        for word in ("torch.distributed", "import time", "import threading", "print(", "logging"):
            assert word not in text, f"{path.name} uses {word}"


def modules() -> list[str]:
    found = [name for _, name, _ in pkgutil.walk_packages([str(SOURCE)], "minga.")]
    return [name for name in found if not name.endswith("__main__")]


@pytest.mark.parametrize("name", ["minga", *modules()])
def test_public_names_exist_and_modules_say_what_they_are_for(name: str) -> None:
    module = importlib.import_module(name)
    assert module.__doc__, f"{name} has no docstring"
    for public in getattr(module, "__all__", []):
        assert hasattr(module, public), f"{name}.__all__ has {public!r}, which does not exist"


def test_a_class_name_means_one_thing() -> None:
    homes: dict[str, list[str]] = {}
    for path in SOURCE.rglob("*.py"):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes.setdefault(node.name, []).append(str(path.relative_to(SOURCE)))
    assert not {name: places for name, places in homes.items() if len(places) > 1}


def test_the_public_api_is_what_it_says() -> None:
    assert set(minga._HOMES) == set(minga.__all__)
    assert set(dir(minga)) == {*minga.__all__, "__version__"}
    with pytest.raises(AttributeError, match="nonsense"):
        minga.nonsense  # noqa: B018


def test_help_does_not_wait_for_torch() -> None:
    code = "import sys, minga.cli.main; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
