"""The page about transports and collectives names all of them, and says what the code says."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

from minga.base.user_files import load_from_file
from minga.comm import COLLECTIVES, TRANSPORTS, Transport
from minga.comm.collectives import CollectiveName
from minga.comm.transport import Pending
from minga.testing import CollectiveConformance

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "transport.md").read_text()
EXAMPLE = PAGE.split("### Write a collective")[1].split("```python\n")[1].split("```")[0]
REQUIRED = [getattr(cls, name) for cls in (Transport, Pending) for name in sorted(cls.__abstractmethods__)]
OPTIONAL = [Pending.cancel, Transport.all_reduce, Transport.all_gather, Transport.carry_out, Transport.close]


@pytest.fixture(scope="module", autouse=True)
def example(tmp_path_factory: pytest.TempPathFactory) -> None:
    TestTheExample.file = tmp_path_factory.mktemp("example") / "chain.py"
    TestTheExample.file.write_text(EXAMPLE)


class TestTheExample(CollectiveConformance):
    file: Path

    def collective(self) -> Callable[[Transport, Tensor], None]:
        chain: Callable[[Transport, Tensor], None] = load_from_file(f"{self.file}:chain")
        return chain


def written(method: Any) -> str:
    """As a line of the page."""
    return f"def {method.__name__}{inspect.signature(method)}: ...".replace("'", "")


def test_every_collective_is_in_the_table() -> None:
    table = PAGE.split("| collective |")[1].split("\n\n")[0]
    assert re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE) == list(COLLECTIVES)
    assert set(CollectiveName.__args__) == set(COLLECTIVES)  # type: ignore[attr-defined]


def test_every_transport_is_in_the_table() -> None:
    table = PAGE.split("| transport |")[1].split("\n\n")[0]
    assert re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)[: len(TRANSPORTS)] == list(TRANSPORTS)


@pytest.mark.parametrize("method", [*REQUIRED, *OPTIONAL], ids=lambda method: method.__qualname__)
def test_what_a_transport_does_is_there_with_its_signature(method: Any) -> None:
    assert f"\n{written(method)}\n" in PAGE
