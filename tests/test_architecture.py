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

# What each part may import, besides itself. What is not listed here may import anything but the top.
ALLOWED = {
    "errors": set(),
    "allowance": set(),
    "pool": set(),
    "user_files": {"errors"},
    "config": {"errors"},
    "spec": {"config", "errors", "user_files"},
    "toml_files": {"config", "errors"},
    "labour": set(),
    "codecs": {"config", "labour", "spec"},
    "comm": {"allowance", "codecs", "errors", "membership"},
    "membership": {"allowance", "config", "errors"},
    "layout": {"comm"},
    "bad_numbers": {"errors", "layout"},
    "memory": {"comm", "errors", "spec"},
    "clipping": set(),
    "sliced_optimizer": {"clipping", "labour", "layout"},
    "shard": {"sliced_optimizer"},
    "ledger": {"errors", "shard", "sliced_optimizer"},
    "batch_norm": {"errors", "keras_parts"},
    "norm_statistics": {"bad_numbers", "keras_parts"},
    "replica": {
        "bad_numbers",
        "batch_norm",
        "clipping",
        "errors",
        "layout",
        "ledger",
        "measure",
        "norm_statistics",
        "shard",
        "sliced_optimizer",
    },
    "strategies": {
        "bad_numbers",
        "codecs",
        "comm",
        "config",
        "errors",
        "layout",
        "ledger",
        "memory",
        "replica",
        "shard",
        "spec",
    },
    "servers": {
        "checkpoints",
        "comm",
        "data",
        "errors",
        "ledger",
        "shard",
        "sliced_optimizer",
        "strategies",
        "trainee",
    },
    "checkpoints": {
        "comm",
        "errors",
        "experiment",
        "journal",
        "keras_parts",
        "measure",
        "memory",
        "replica",
        "sliced_optimizer",
        "spec",
        "strategies",
        "trainee",
    },
    "measure": {"comm", "errors"},
    "data": {"errors", "pool"},
    "units": {"errors"},
    "network": {"config", "units"},
    "lab": {"config", "errors", "measure", "network", "units"},
    "workloads": {"data", "errors", "evaluate", "trained", "user_files", "workload"},
    "keras_parts": {"errors"},
    "keras": {
        "clipping",
        "data",
        "errors",
        "evaluate",
        "experiment",
        "keras_parts",
        "user_files",
        "weights",
        "workload",
    },
    "weights": {"errors", "keras_parts"},
    "buffers": {"comm", "keras_parts", "norm_statistics"},
    "evaluate": {"comm", "data", "errors", "replica", "workload"},
    "experiment": {"config", "errors", "network", "spec", "strategies", "toml_files"},
    "pace": {"comm", "experiment", "measure"},
    "train": {
        "buffers",
        "checkpoints",
        "comm",
        "experiment",
        "journal",
        "measure",
        "pace",
        "trainee",
        "whole_batch",
    },
    "whole_batch": {"batch_norm", "buffers", "comm", "data", "errors", "experiment", "pace", "replica"},
}
TOP = {"cli", "web", "chaos", "study", "report", "launch", "runner", "own_loop", "plan", "simulate", "testing"}


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
                imported = name.split(".")[1] if "." in name else "minga"
                if imported != part:
                    found.append((path, part, imported))
    return found


@pytest.mark.parametrize("part", ALLOWED)
def test_arrows_point_one_way(part: str) -> None:
    wrong = [f"{path.name} imports {to}" for path, start, to in imports() if start == part and to not in ALLOWED[part]]
    assert not wrong


def test_nothing_below_imports_what_people_see() -> None:
    entrances = {"__init__", "__main__"}
    wrong = [
        f"{path} imports {to}"
        for path, start, to in imports()
        if start not in entrances and (to in {"cli", "web"} or (to in TOP and start not in TOP))
    ]
    assert not wrong


def test_only_the_command_line_knows_studies() -> None:
    above = {"__init__", "cli", "web"}
    assert [f"{path} imports study" for path, start, to in imports() if to == "study" and start not in above] == []


def test_strategies_do_not_know_torch_distributed_nor_the_time() -> None:
    for path in (SOURCE / "strategies").glob("*.py"):
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


def test_the_public_api_is_what_it_says() -> None:
    assert set(minga._HOMES) == set(minga.__all__)
    assert set(dir(minga)) == {*minga.__all__, "__version__"}
    with pytest.raises(AttributeError, match="nonsense"):
        minga.nonsense  # noqa: B018


def test_help_does_not_wait_for_torch() -> None:
    code = "import sys, minga.cli.main; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_files_stay_small() -> None:
    long = {path.name: lines for path in SOURCE.rglob("*.py") if (lines := len(path.read_text().splitlines())) > 400}
    assert not long
