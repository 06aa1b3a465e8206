"""The page about workloads says what the code says, and its example learns."""

from __future__ import annotations

import ast
import inspect
import itertools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import minga
from minga.base.user_files import load_from_file
from minga.comm.threads import ThreadWorld
from minga.metrics.evaluation import evaluate
from minga.runs.workload import FurtherTest, Workload, load_workload
from minga.testing.worlds import train_in_threads
from minga.workloads import WORKLOADS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "workloads.md").read_text()
EXAMPLE = PAGE.split("```python\n")[1].split("```")[0]


def documented(cls: type) -> Iterator[tuple[str, ast.expr | None, str]]:
    """Each field with its default and what stands below it."""
    body = ast.parse(inspect.getsource(cls)).body[0].body  # type: ignore[attr-defined]
    for field, about in itertools.pairwise(body):
        if isinstance(field, ast.AnnAssign):
            assert isinstance(field.target, ast.Name)
            yield field.target.id, field.value, " ".join(about.value.value.split())


def rows(cls: type) -> dict[str, tuple[str, str]]:
    """Default and meaning of each field, as the table on the page has them."""
    table = PAGE.split(f"| `{cls.__name__}` | default | meaning |\n")[1].split("\n\n")[0]
    cells = [re.fullmatch(r"\| `(\w+)` \| (.+?) \| (.+) \|", line) for line in table.splitlines()[1:]]
    return {found[1]: (found[2], found[3]) for found in cells if found is not None}


@pytest.mark.parametrize("cls", [Workload, FurtherTest])
def test_every_field_is_in_the_table_with_its_default_and_meaning(cls: type) -> None:
    told, fields = rows(cls), list(documented(cls))
    assert list(told) == [name for name, _, _ in fields]
    for name, default, meaning in fields:
        assert told[name][1] == meaning
        if default is None:
            assert told[name][0] == "required", name
        elif isinstance(default, ast.Constant | ast.Tuple | ast.Attribute):
            assert told[name][0] == f"`{ast.unparse(default)}`", name
        else:
            assert told[name][0] != "required", name


def test_the_example_learns_on_two_nodes(tmp_path: Path) -> None:
    file = tmp_path / "waves.py"
    file.write_text(EXAMPLE)
    workload = load_workload(f"{file}:waves", None)
    training = minga.Training(total_batch=workload.batch, evaluate_every=0)
    experiment = minga.Experiment(
        workload=f"{file}:waves",
        strategy="ring",  # type: ignore[arg-type]
        cluster=minga.Cluster(nodes=2),
        training=training,
    )
    replica = train_in_threads(experiment, workload)[0]
    found = evaluate(workload, replica, ThreadWorld(1).transport(0), torch.device("cpu")).numbers
    assert list(found) == ["loss", "R2", "RMSE", "R2 with noise"]
    assert found["R2"] > 0.9 and found["R2"] > found["R2 with noise"]


def test_the_example_of_the_repository_is_one() -> None:
    assert isinstance(load_from_file(f"{ROOT}/examples/own_workload.py:workload"), Workload)


def test_every_built_in_workload_is_in_the_list_with_its_line() -> None:
    listed = PAGE.split("## The built-in ones")[1]
    for workload in dict.fromkeys(WORKLOADS.values()):
        names = ", ".join(f"`{name}`" for name, each in WORKLOADS.items() if each == workload)
        assert workload.about and f"| {names} | {workload.about} |" in listed
