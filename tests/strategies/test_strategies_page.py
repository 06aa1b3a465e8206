"""The page about strategies says what the code says, and its example passes the whole kit."""

from __future__ import annotations

import ast
import inspect
import itertools
import re
from pathlib import Path
from typing import Any

import pytest

import minga.strategies
from minga.base.user_files import load_from_file
from minga.model.progress import Progress
from minga.strategies import STRATEGIES, Strategy, capabilities
from minga.strategies.base import Traits
from minga.testing import DeterministicStrategyConformance

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "strategies.md").read_text()
EXAMPLE = PAGE.split("```python\n")[1].split("```")[0]
INTERFACE = ["codec", "check", "traits", "start", "step", "gradient_ready", "finish"]
PROTOCOLS = [
    capabilities.Agreeing,
    capabilities.Anchored,
    capabilities.Checkpointed,
    capabilities.Delegating,
    capabilities.Periodic,
    capabilities.Remembering,
    capabilities.Serving,
]


@pytest.fixture(scope="module", autouse=True)
def example(tmp_path_factory: pytest.TempPathFactory) -> None:
    TestTheExample.file = tmp_path_factory.mktemp("example") / "mine.py"
    TestTheExample.file.write_text(EXAMPLE)


class TestTheExample(DeterministicStrategyConformance):
    file: Path

    def make(self) -> Strategy:
        strategy: Strategy = load_from_file(f"{self.file}:Averaging")(period=4)
        return strategy


def test_the_example_has_twenty_lines() -> None:
    assert len([line for line in EXAMPLE.splitlines() if line.strip()]) <= 20


def test_the_interface_is_small() -> None:
    mine = [name for name in vars(Strategy) if not name.startswith("_") and callable(getattr(Strategy, name, None))]
    assert set(mine) <= set(INTERFACE)
    assert len(INTERFACE) == 7


def written(method: Any) -> str:
    """As a line of the page."""
    signature = str(inspect.signature(method)).replace("'", "").replace("slice(None, None, None)", "slice(None)")
    return f"def {method.__name__}{signature}: ..."


def methods(cls: type) -> list[Any]:
    return [each for name, each in vars(cls).items() if inspect.isfunction(each) and not name.startswith("_")]


@pytest.mark.parametrize("cls", PROTOCOLS, ids=lambda cls: cls.__name__)
def test_capabilities_are_documented_with_their_signatures(cls: type) -> None:
    assert f"**`{cls.__name__}`**" in PAGE
    assert methods(cls)
    for method in methods(cls):
        assert written(method) in PAGE


def test_the_methods_of_a_strategy_and_of_progress_are_documented_with_their_signatures() -> None:
    for method in (Strategy.start, Strategy.step, Strategy.gradient_ready, Strategy.finish):
        assert written(method) in PAGE
    for method in (Progress.merge, Progress.merge_ranks, Progress.merge_when_asked, Progress.act_in_groups):
        assert written(method) in PAGE


def test_every_trait_is_in_the_table_with_its_meaning() -> None:
    body = ast.parse(inspect.getsource(Traits)).body[0].body  # type: ignore[attr-defined]
    for field, about in itertools.pairwise(body):
        if isinstance(field, ast.AnnAssign):
            assert isinstance(field.target, ast.Name)
            meaning = " ".join(about.value.value.split())
            assert re.search(rf"^\| `{field.target.id}` \| .* \| {re.escape(meaning)} \|$", PAGE, re.MULTILINE)


def test_what_built_in_strategies_use_of_a_replica_is_explained() -> None:
    folder = Path(minga.strategies.__file__).parent
    used = set()
    for path in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Attribute):
                continue
            if isinstance(node.value, ast.Name) and node.value.id == "replica":
                used.add(f"replica.{node.attr}")
            elif isinstance(node.value, ast.Attribute) and node.value.attr == "info":
                used.add(f".{node.attr}")
    assert len(used) > 20
    assert not [name for name in used if f"`{name}" not in PAGE]


def test_every_strategy_is_on_a_page() -> None:
    pages = "".join(path.read_text() for path in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")])
    assert not [name for name in STRATEGIES if not re.search(rf"`{name}[`:]", pages)]
