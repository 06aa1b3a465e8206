"""From a raw thing to an answer, where a workload says nothing else, and where it does."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn
from torch.utils.data import IterableDataset, TensorDataset

from minga.errors import ConfigError, DataError, WorkloadError
from minga.metrics import F1, R2
from minga.runs.answering import Preparation
from minga.runs.signature import Signature, TensorSpec
from minga.runs.workload import Workload
from minga.workloads import built_in
from minga.workloads.digits import load_digits


def made(inputs: Tensor, targets: Tensor | None = None, **fields: Any) -> Workload:
    targets = torch.zeros(len(inputs), dtype=torch.int64) if targets is None else targets
    made_by = {"name": "mine", "model": nn.Identity, "train": TensorDataset(inputs, targets)}
    return Workload(**{**made_by, **fields})


# --- what goes in and comes out ---------------------------------------------------------------------------------


def test_two_samples_show_what_a_model_takes_and_gives() -> None:
    workload = built_in("digits", None)
    model = workload.model()
    model.train()
    next(model.children()).eval()  # frozen by its owner
    modes = [module.training for module in model.modules()]
    described = workload.describe(model)
    assert described.inputs == (TensorSpec("inputs", "float32", (1, 8, 8)),)
    assert described.outputs == (TensorSpec("outputs", "float32", (10,)),)
    assert [module.training for module in model.modules()] == modes


class Growing(IterableDataset[tuple[Tensor, int]]):
    def __init__(self) -> None:
        self.opened = 0

    def __iter__(self) -> Iterator[tuple[Tensor, int]]:
        self.opened += 1
        return iter([(torch.zeros(3 + number), 0) for number in range(4)])


def test_what_varies_is_none_and_streams_begin_anew() -> None:
    stream = Growing()
    workload = Workload(name="mine", model=nn.Identity, train=stream)
    assert stream.opened == 0
    assert workload.describe(nn.Identity()).inputs == (TensorSpec("inputs", "float32", (None,)),)
    assert len(list(stream)) == 4
    assert workload.prepare([1, 2, 3, 4, 5]).tolist() == [1.0, 2.0, 3.0, 4.0, 5.0]


def test_a_signature_that_is_given_is_taken() -> None:
    said = Signature((TensorSpec("inputs", "int64", (None,)),), (TensorSpec("outputs", "float32", (7,)),))
    workload = made(torch.zeros(4, 2), signature=said)
    assert workload.describe(nn.Identity()) is said
    assert workload.prepare([4, 5, 6]).dtype == torch.int64


def test_several_inputs_are_named() -> None:
    train = TensorDataset(torch.zeros(3, 2), torch.zeros(3, 4, dtype=torch.int64), torch.zeros(3))
    workload = Workload(name="mine", model=nn.Identity, train=train, predict=lambda model, batch: (batch[0], batch[2]))
    names = [(spec.name, spec.shape) for spec in workload.describe(nn.Identity()).inputs]
    assert names == [("inputs_0", (2,)), ("inputs_1", (4,))]
    with pytest.raises(DataError, match=r"inputs_0 \(float32\), inputs_1 \(int64\), not one tensor; .* `prepare`"):
        workload.prepare([1.0, 2.0])


def test_workloads_are_imported_without_all_formats() -> None:
    code = "import sys, minga.runs.workload; assert not {'pydantic', 'minga.data.formats', 'PIL'} & sys.modules.keys()"
    subprocess.run([sys.executable, "-c", code], check=True)


# --- what is raw ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("raw", [[1, 2.5], (1, 2.5), np.array([1, 2.5]), torch.tensor([1, 2.5])])
def test_numbers_become_a_tensor_like_the_first_sample(raw: Any) -> None:
    prepared = made(torch.zeros(4, 2)).prepare(raw)
    assert prepared.dtype == torch.float32 and prepared.tolist() == [1.0, 2.5]


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        ([1, 2, 3], r"mine takes 2 \(float32\), not 3; give what fits, or the workload a `prepare`"),
        (7, r"not a single number"),
        ([[1, 2], [3]], r"not this list"),
        ({"a": 1}, r"not this dict"),
        ("a sentence", r"mine takes 2 \(float32\), not 'a sentence'; .*`prepare`"),
        (None, r"not this NoneType"),
    ],
)
def test_what_does_not_fit_is_told_with_what_would(raw: Any, says: str) -> None:
    with pytest.raises(DataError, match=says):
        made(torch.zeros(4, 2)).prepare(raw)


@pytest.mark.parametrize("raw", [[0.5, 1], [1, 300]])
def test_numbers_are_not_cut_to_fit(raw: Any) -> None:
    with pytest.raises(DataError, match="these numbers are no uint8"):
        made(torch.zeros(4, 2, dtype=torch.uint8)).prepare(raw)


def test_pictures_get_the_size_and_colours_of_the_samples(tmp_path: Path) -> None:
    Image.new("RGB", (30, 20), (255, 0, 51)).save(tmp_path / "1.png")
    for raw in (tmp_path / "1.png", str(tmp_path / "1.png"), Image.open(tmp_path / "1.png")):
        prepared = made(torch.zeros(2, 3, 4, 6)).prepare(raw)
        assert prepared.shape == (3, 4, 6) and prepared[:, 0, 0].tolist() == pytest.approx([1, 0, 0.2])
    assert made(torch.zeros(2, 1, 4, 6, dtype=torch.float16)).prepare(raw).dtype == torch.float16
    assert made(torch.zeros(2, 3, 4, 6, dtype=torch.uint8)).prepare(raw)[:, 0, 0].tolist() == [255, 0, 51]
    (tmp_path / "damaged.png").write_text("no picture")
    with pytest.raises(DataError, match=r"damaged\.png' is no picture that can be read: .*; give another"):
        made(torch.zeros(2, 3, 4, 6)).prepare(str(tmp_path / "damaged.png"))
    with pytest.raises(DataError, match=r"there is no file '.*nothing\.png'; give a picture's path"):
        made(torch.zeros(2, 3, 4, 6)).prepare(str(tmp_path / "nothing.png"))
    with pytest.raises(DataError, match=r"takes 2 x 4 x 6 \(float32\), not .*`prepare`"):
        made(torch.zeros(2, 2, 4, 6)).prepare(raw)


def test_digits_are_read_on_paper_and_on_black() -> None:
    workload = built_in("digits", None)
    pictures, _ = load_digits()
    pixels = (pictures[3, 0] * 255).round().to(torch.uint8).numpy()
    for image in (Image.fromarray(pixels), Image.fromarray(255 - pixels)):
        torch.testing.assert_close(workload.prepare(image), pictures[3], atol=0.005, rtol=0)


def test_what_is_done_to_pictures_is_kept_by_a_changed_copy() -> None:
    workload = made(torch.zeros(2, 1, 2, 2), prepare=Preparation(picture=lambda picture: picture - 1))
    changed = dataclasses.replace(workload, train=TensorDataset(torch.zeros(2, 1, 3, 3), torch.zeros(2)))
    assert changed.prepare(Image.new("L", (2, 2), 255)).tolist() == [[[0.0] * 3] * 3]
    assert workload.prepare(Image.new("L", (2, 2), 255)).shape == (1, 2, 2)


# --- what comes out ---------------------------------------------------------------------------------------------


def test_a_class_has_its_name_and_probability() -> None:
    workload = made(torch.zeros(4, 3), classes=("cod", "trout", "eel"))
    answer = workload.respond(nn.Identity(), [0.0, 2.0, 1.0])
    assert answer["class"] == "trout" and answer["probability"] == pytest.approx(0.6652, abs=1e-4)
    assert [each["class"] for each in answer["top"]] == ["trout", "eel", "cod"]
    assert made(torch.zeros(4, 3)).respond(nn.Identity(), [0.0, 2.0, 1.0])["class"] == 1
    # What a softmax has made stays as it is.
    assert workload.respond(nn.Identity(), [0.25, 0.5, 0.25])["probability"] == 0.5


def test_labels_and_plain_numbers() -> None:
    labels = made(torch.zeros(4, 2), torch.zeros(4, 2), metrics={"F1": F1()}, classes=("even", "prime"))
    answer = labels.respond(nn.Identity(), [1.0, -1.0])
    assert answer["labels"] == ["even"] and answer["probabilities"]["prime"] == pytest.approx(0.2689, abs=1e-4)
    plain = made(torch.zeros(4, 2), torch.zeros(4, 2), metrics={"R2": R2()})
    assert plain.respond(nn.Identity(), [1.5, 2.0]) == [1.5, 2.0]
    assert made(torch.zeros(4, 1), torch.zeros(4, 1), metrics={"R2": R2()}).respond(nn.Identity(), [1.5]) == 1.5


def test_what_predict_does_is_done_and_the_mode_comes_back() -> None:
    workload = made(
        torch.zeros(4, 2), metrics={}, predict=lambda model, batch: (model(batch[0] / 2), batch[1]), model=nn.Dropout
    )
    model = nn.Dropout(0.9)
    assert workload.respond(model, [2.0, 4.0]) == [1.0, 2.0] and model.training


def test_a_workload_says_it_all_itself() -> None:
    workload = made(
        torch.zeros(4, 2),
        prepare=len,
        answer=lambda model, prepared, *, times=1: prepared * times,
        present=lambda output: f"{output} letters",
    )
    assert workload.respond(nn.Identity(), "word") == "4 letters"
    assert workload.respond(nn.Identity(), "word", times=2) == "8 letters"
    with pytest.raises(ConfigError, match="mine does not answer with these options: beam"):
        workload.respond(nn.Identity(), "word", beam=2)
    assert workload.respond_to_all(nn.Identity(), ["a", "word"]) == ["1 letters", "4 letters"]
    asked: list[list[int]] = []

    def together(model: nn.Module, prepared: list[int], *, times: int = 1) -> list[int]:
        asked.append(prepared)
        return [each * times for each in prepared]

    words = ["word"] * 450
    many = dataclasses.replace(workload, answer_many=together)
    assert many.respond_to_all(nn.Identity(), words, times=2) == ["8 letters"] * 450
    assert [len(each) for each in asked] == [200, 200, 50]
    with pytest.raises(ConfigError, match="options: beam"):
        made(torch.zeros(4, 2)).respond(nn.Identity(), [1, 2], beam=2)


@pytest.mark.parametrize(
    ("name", "raw"),
    [
        ("digits", [[[0.0] * 8] * 8]),
        ("digits-labels", [[[0.0] * 8] * 8]),
        ("friedman", [0.1] * 10),
        ("counting", "one, "),
    ],
)
def test_built_in_workloads_answer(name: str, raw: Any) -> None:
    workload = built_in(name, None)
    answer = workload.respond(workload.model(), raw)
    kind = {"digits": "class", "digits-labels": "labels"}.get(name)
    assert kind in answer if kind else isinstance(answer, float | str)


def test_an_empty_stream_is_told() -> None:
    class Empty(IterableDataset[Any]):
        def __iter__(self) -> Iterator[Any]:
            return iter([])

    with pytest.raises(WorkloadError, match="stream of samples is empty"):
        Workload(name="mine", model=nn.Identity, train=Empty()).describe(nn.Identity())
