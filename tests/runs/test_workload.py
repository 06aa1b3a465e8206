"""Workloads: their usual parts, and how they are found behind a name or in a user's file."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from minga.errors import ConfigError, DataError, MingaError, WorkloadError
from minga.runs.workload import Workload, correct, load_workload

MINE = """
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import IterableDataset, TensorDataset

from minga import Workload


def make(name, samples=4, train=None, test=None):
    dataset = TensorDataset(torch.zeros(samples, 2), torch.zeros(samples, dtype=torch.int64))
    train = dataset if train is None else train
    return Workload(name=name, model=lambda: nn.Linear(2, 2), train=train, test=test)


class Stream(IterableDataset):
    def __iter__(self):
        return iter([])


workload = make("object")


def function():
    return make("function")


def function_of_data(data):
    return make(f"data in {data}")


def function_of_optional_data(*, data: Path | None = None):
    return make(f"data in {data}")


number = 7


def function_of_nothing():
    return None


def empty():
    return make("empty", samples=0)


def streamed():
    return make("streamed", train=Stream())


def once():
    return make("once", test=(number for number in range(3)))


def listed():
    return make("listed", train=[(torch.zeros(2), 0)])
"""


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(sys, "path", sys.path.copy())
    path = tmp_path / "mine.py"
    path.write_text(MINE)
    return path


# --- where workloads come from -----------------------------------------------------------------------------------


def test_a_built_in_workload_is_found_by_its_name() -> None:
    assert load_workload("digits", None).name == "digits"


def test_an_unknown_name_is_answered_with_the_names_and_the_way_to_ones_own() -> None:
    with pytest.raises(ConfigError) as caught:
        load_workload("digist", None)
    message = str(caught.value)
    assert message.startswith("unknown workload 'digist'; known: ") and ", digits, " in message
    assert message.endswith("Did you mean 'digits'? A workload of your own: file.py:name.")


@pytest.mark.parametrize(
    ("name", "found"),
    [
        (":workload", "object"),
        ("", "object"),
        (":function", "function"),
        (":function_of_data", "data in None"),
        (":function_of_optional_data", "data in None"),
        (":listed", "listed"),
    ],
)
def test_a_users_workload_is_an_object_or_a_function(mine: Path, name: str, found: str) -> None:
    assert load_workload(f"{mine}{name}", None).name == found


@pytest.mark.parametrize("name", ["function_of_data", "function_of_optional_data"])
def test_a_function_that_takes_data_gets_the_directory(mine: Path, name: str) -> None:
    assert load_workload(f"{mine}:{name}", "/some/where").name == "data in /some/where"


def test_the_data_directory_may_be_relative_to_home(mine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/some/where")
    assert load_workload(f"{mine}:function_of_data", "~/data").name == "data in /some/where/data"


def test_the_data_directory_reaches_built_in_workloads(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=f"{tmp_path / 'mnist'} lacks train-images-idx3-ubyte"):
        load_workload("mnist", str(tmp_path))


@pytest.mark.parametrize(("name", "kind"), [("number", "int"), ("function_of_nothing", "NoneType")])
def test_something_else_is_refused_with_what_it_is(mine: Path, name: str, kind: str) -> None:
    with pytest.raises(WorkloadError) as caught:
        load_workload(f"{mine}:{name}", None)
    expected = "a minga.Workload, a compiled Keras model or a function that makes one of these"
    assert str(caught.value) == f"{mine}:{name} is a {kind}, not {expected}"


def test_an_empty_training_set_is_refused(mine: Path) -> None:
    with pytest.raises(WorkloadError, match=r"^empty.train is empty; give samples, or None for no test$"):
        load_workload(f"{mine}:empty", None)


def test_a_stream_is_data_too_unless_it_can_be_read_only_once(mine: Path) -> None:
    assert load_workload(f"{mine}:streamed", None).name == "streamed"
    with pytest.raises(WorkloadError, match="a generator, which can be read only once"):
        load_workload(f"{mine}:once", None)


# --- the usual parts ---------------------------------------------------------------------------------------------


def linear(**parts: object) -> Workload:
    dataset = TensorDataset(torch.zeros(1, 2), torch.zeros(1, dtype=torch.int64))
    return Workload(name="linear", model=lambda: nn.Linear(2, 3), train=dataset, **parts)  # type: ignore[arg-type]


def test_correct_is_one_where_the_largest_output_is_at_the_target() -> None:
    outputs = torch.tensor([[0.1, 0.9], [0.9, 0.1], [-2.0, -1.0]])
    assert correct(outputs, torch.tensor([1, 1, 1])).tolist() == [1.0, 0.0, 1.0]


def test_correct_of_one_output_is_refused() -> None:
    with pytest.raises(WorkloadError, match=r"of one output for each sample \(4 x 1\)"):
        correct(torch.zeros(4, 1), torch.zeros(4))


def test_correct_sums_exactly_over_many_samples() -> None:
    assert correct(torch.zeros(1, 2), torch.zeros(1, dtype=torch.int64)).dtype == torch.float64


def test_the_usual_prediction_is_the_models_for_the_inputs() -> None:
    workload = linear()
    model = workload.model()
    inputs, targets = torch.randn(4, 2), torch.tensor([0, 1, 2, 0])
    outputs, same_targets = workload.predict(model, (inputs, targets))
    assert torch.equal(outputs, model(inputs))
    assert same_targets is targets


def test_the_usual_loss_is_the_mean_cross_entropy() -> None:
    outputs, targets = torch.tensor([[2.0, 0.0, 1.0], [0.0, 0.0, 0.0]]), torch.tensor([0, 2])
    expected = -(torch.softmax(outputs, dim=1)[[0, 1], targets].log()).mean()
    torch.testing.assert_close(linear().loss(outputs, targets), expected)


def test_the_usual_metric_is_accuracy() -> None:
    assert dict(linear().metrics) == {"accuracy": correct}


def test_the_usual_optimizer_is_sgd_with_momentum_over_the_given_parameters() -> None:
    workload = linear()
    parameters = list(workload.model().parameters())
    optimizer = workload.optimizer(parameters)
    assert type(optimizer) is torch.optim.SGD
    assert optimizer.param_groups[0]["momentum"] == 0.9
    assert all(mine is given for mine, given in zip(optimizer.param_groups[0]["params"], parameters, strict=True))


@pytest.mark.parametrize("part", ["loss", "predict", "optimizer"])
def test_a_part_can_be_replaced(part: str) -> None:
    own: Callable[..., None] = lambda *_: None  # noqa: E731
    assert getattr(linear(**{part: own}), part) is own


def test_a_workload_does_not_change() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        linear().batch = 3  # type: ignore[misc]


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ("metrics={'F1': F1()}, main='f1'", r"unknown main metric of mine: 'f1'; known: F1, loss. Did you mean 'F1'"),
        ("metrics={'c': ConfusionMatrix()}, main='c'", "unknown main metric of mine: 'c'; known: loss"),
        ("further_tests=[FurtherTest(data=data, metrics={'accuracy': F1()})]", "several metrics of the same name"),
        ("further_tests=[FurtherTest(data=[], metrics={'F1': F1()})]", r"a further test \(F1\) needs samples"),
        ("test=None, further_tests=[FurtherTest(data=data, metrics={'F1': F1()})]", "and a test beside it"),
        ("test_batch=0", "mine.test_batch should be at least 1, not 0"),
        ("metrics=['accuracy']", r"mine\.metrics should be a dict of names and metrics, not \['accuracy'\]"),
        ("metrics={'F1': F1}", r"the metric 'F1' is a class; make one of it: F1\(\)"),
        ("metrics={'acc': 'accuracy'}", r"the metric 'acc' should be one of minga\.metrics .* not 'accuracy'"),
        ("model=torch.nn.Linear(4, 2)", r"mine\.model is a Linear.* give model=lambda: Linear\(\)"),
    ],
)
def test_metrics_that_make_no_sense_are_told(tmp_path: Path, changed: str, says: str) -> None:
    file = tmp_path / "mine.py"
    file.write_text(
        "import torch\n"
        "from torch.utils.data import TensorDataset\n"
        "from minga import FurtherTest, Workload\n"
        "from minga.metrics import F1, ConfusionMatrix\n"
        "data = TensorDataset(torch.randn(8, 4), torch.arange(8) % 2)\n"
        f"settings = dict(test=data, model=lambda: torch.nn.Linear(4, 2)) | dict({changed})\n"
        "workload = Workload(name='mine', train=data, **settings)\n"
    )
    with pytest.raises(MingaError, match=says):
        load_workload(str(file), None)
