"""Functions as processes: what travels, what does not, and what comes back."""

from __future__ import annotations

import json
import linecache
import math
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy
import pytest
import torch

import minga
from minga.engines.scripts import call
from minga.engines.sources import script_of
from minga.errors import MingaError, RankFailed
from minga.report.live import NotebookView, View, in_notebook

CELLS = """
import enum
import functools
import math
import pathlib
import torch
import torch.nn.functional as F
from collections import Counter as Counting
from dataclasses import dataclass
from random import random

import minga

WIDTH = 3
NAMES = {"a": [1, 2.5, None], "b": (True, "x")}
tensor = torch.ones(2)
lock = open


def twice(function):
    @functools.wraps(function)
    def doubled(*arguments):
        return 2 * function(*arguments)
    return doubled


class Base:
    def value(self):
        return WIDTH


@dataclass
class Derived(Base):
    extra: int = WIDTH

    def total(self):
        return self.value() + self.extra


class Settings:
    rate = 0.5


@dataclass
class Plain:
    depth: int = WIDTH


class Stop(Exception):
    pass


class Level(enum.Enum):
    LOW = 1


class Decorated:
    @torch.no_grad()
    def value(self):
        return 7


def uses_classes():
    try:
        raise Stop
    except Stop:
        return [Settings.rate, Plain().depth, Level.LOW.value, Decorated().value()]


@twice
def helper(number):
    return number + Derived().total()


def good(number, tensor=None):
    lock = len(NAMES)  # a local name hides the notebook's
    tensor = F.relu(torch.zeros(1))
    print("number", number)
    return [helper(number), Counting("aab")["a"], float(tensor), lock, minga.__name__]


class Knot:
    def child(self):
        return Leaf()


class Leaf(Knot):
    value = [number for number in (Settings.rate, 1)]


Branch = Knot
FOLDER, DEVICE, KIND, WORST = pathlib.Path("some") / "where", torch.device("cpu"), torch.float64, -math.inf
double = lambda number: 2 * number


def uses_what_is_derived():
    return [Branch().child().value, isinstance(Branch(), Knot), random() < 1]


def uses_values():
    return [str(FOLDER), str(DEVICE), str(torch.zeros(1, dtype=KIND).dtype), WORST]


def keeps_tabs():
    return "a	b"


def uses_lambda():
    return double(1)


def uses_tensor():
    return tensor.sum()


def train(epochs, fail=False):
    run = minga.join()
    model = torch.nn.Linear(2, 1)
    data = torch.utils.data.TensorDataset(torch.ones(16, 2), torch.ones(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer, loader = run.prepare(model, optimizer, torch.utils.data.DataLoader(data, batch_size=4))
    for _ in range(epochs):
        for inputs, targets in loader:
            run.step(F.mse_loss(model(inputs), targets))
    run.finish()
    if fail and run.rank == 1:
        raise KeyError("nothing here")
    print("rank", run.rank, "has trained", end="" if fail is None else "\\n")
    return {"rank": run.rank, "weights": model.weight.detach().tolist()}


def returns_tensor():
    return torch.ones(1)


def outer():
    def inner():
        return 1
    return inner
"""


@pytest.fixture(scope="module")
def cells() -> dict[str, Any]:
    """As a notebook has them: in no file, and in a namespace that calls itself __main__."""
    name = "<cell 1>"
    linecache.cache[name] = (len(CELLS), None, CELLS.splitlines(keepends=True), name)
    earlier = "class Settings:\n    rate = 0.1\n    other = 1\n"
    linecache.cache["<cell 2>"] = (len(earlier), None, earlier.splitlines(keepends=True), "<cell 2>")
    broken = "%matplotlib inline\n"
    linecache.cache["<cell 3>"] = (len(broken), None, [broken], "<cell 3>")
    module = ModuleType("__main__")
    exec(compile(CELLS, name, "exec"), vars(module))
    return vars(module)


def run_script(text: str, function: str, *arguments: Any) -> Any:
    module = sys.modules["sent"] = ModuleType("sent")  # dataclasses look for their module there
    try:
        exec(compile(text, "<sent>", "exec"), vars(module))
        return vars(module)[function](*arguments)
    finally:
        del sys.modules["sent"]


def test_a_function_travels_with_what_it_uses(cells: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    text = script_of(cells["good"], {"number": 4})
    assert run_script(text, "good", 4) == cells["good"](4) == [20, 2, 0.0, 2, "minga"]
    assert "uses_tensor" not in text and "call(good, {'number': 4})" in text
    assert capsys.readouterr().out == "number 4\n" * 2


def test_classes_travel_also_without_methods_of_their_own(cells: dict[str, Any]) -> None:
    text = script_of(cells["uses_classes"], {})
    assert run_script(text, "uses_classes") == [0.5, 3, 1, 7]


def test_definitions_come_before_what_is_derived_from_them_and_once(cells: dict[str, Any]) -> None:
    text = script_of(cells["uses_what_is_derived"], {})
    assert run_script(text, "uses_what_is_derived") == [[0.5, 1], True, True]


def test_folders_devices_and_types_travel_and_text_as_it_is(cells: dict[str, Any]) -> None:
    text = script_of(cells["uses_values"], {})
    assert run_script(text, "uses_values") == [str(Path("some/where")), "cpu", "torch.float64", -math.inf]
    assert run_script(script_of(cells["keeps_tabs"], {}), "keeps_tabs") == "a\tb"


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda cells: (cells["uses_lambda"], {}), r"uses 'double', a lambda.*'def'"),
        (lambda cells: (cells["uses_tensor"], {}), r"uses 'tensor'.*a Tensor.*make it inside"),
        (lambda cells: (lambda: 1, {}), "defined with 'def'"),
        (lambda cells: (cells["outer"](), {}), "inside a function"),
        (lambda cells: (cells["good"], {"number": cells["tensor"]}), "arguments of good"),
        (lambda cells: (cells["good"], {"number": 1, "numbr": 1}), "numbr"),
        (lambda cells: (cells["good"], {}), "missing a required argument"),
    ],
)
def test_what_can_not_travel_is_said_before_anything_starts(cells: dict[str, Any], make: Any, words: str) -> None:
    function, arguments = make(cells)
    with pytest.raises(MingaError, match=words):
        script_of(function, arguments)


def test_a_function_trains_on_two_processes(
    cells: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    done = minga.launch(cells["train"], nodes=2, strategy="ring", arguments={"epochs": 2}, runs=tmp_path, view=View())
    assert [result["rank"] for result in done.results] == [0, 1]
    assert done.results[0]["weights"] == done.results[1]["weights"]
    assert done.summary is not None and done.summary.nodes == 2 and done.summary.samples == 32
    assert capsys.readouterr().out == "rank 0 has trained\n"
    minga.launch(cells["train"], nodes=1, arguments={"epochs": 1, "fail": None}, runs=tmp_path, view=View())
    assert capsys.readouterr().out == "rank 0 has trained\n"
    assert "def train(epochs, fail=False):" in (done.run / "train.py").read_text()


def test_what_goes_wrong_in_a_process_is_told(cells: dict[str, Any], tmp_path: Path) -> None:
    arguments = {"epochs": 1, "fail": True}
    with pytest.raises(RankFailed, match=r"rank 1 failed.*KeyError.*nothing here") as failed:
        minga.launch(cells["train"], nodes=2, arguments=arguments, runs=tmp_path, view=View())
    # Where an error is shown, so are its notes.
    assert 'raise KeyError("nothing here")' in failed.value.__notes__[0]
    with pytest.raises(MingaError, match="returned a Tensor"):
        minga.launch(cells["returns_tensor"], nodes=1, runs=tmp_path, view=View())


def test_single_numbers_of_any_kind_come_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "results").mkdir()
    monkeypatch.setenv("MINGA_RUN", str(tmp_path))
    monkeypatch.setenv("RANK", "0")
    call(lambda: {"loss": torch.tensor(0.5), "right": numpy.int64(3), "mean": numpy.float32(0.25)}, {})
    assert json.loads((tmp_path / "results/rank-0.json").read_text()) == {"loss": 0.5, "right": 3, "mean": 0.25}
    with pytest.raises(MingaError, match=r"a ndarray is not a number.*save the rest to files"):
        call(lambda: {"all": numpy.zeros(3)}, {})


def test_a_report_in_a_cell_and_as_text(cells: dict[str, Any], tmp_path: Path) -> None:
    options: dict[str, Any] = {"arguments": {"epochs": 2}, "runs": tmp_path, "view": View()}
    done = minga.launch(cells["train"], nodes=1, strategy="single", **options)
    shown = minga.show(done)
    assert "train.py" in repr(shown) and "- One run" in repr(shown)
    assert "<script" not in shown._repr_html_() and "<svg" in shown._repr_html_()
    with pytest.raises(MingaError, match=r"no section 'Nonsense'.*Quality|no section 'Nonsense'.*Time"):
        minga.show(done, sections=["Nonsense"])
    with pytest.raises(MingaError, match="no directory"):
        minga.show(f"{tmp_path}/nothing-*")
    view = NotebookView()
    assert not in_notebook() and repr(view) == "no run yet"
    assert done.summary is not None and "single" in done.summary._repr_mimebundle_()["text/html"]
