"""Workloads on pictures: CIFAR-10 with the thesis' network, ResNet-34 on folders."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import minga
from minga.data.formats import origin_of_path
from minga.data.formats.base import PictureShape
from minga.data.formats.tables import TableChoice
from minga.data.preparing.prepare import Recipe, prepare
from minga.errors import DataError
from minga.runs.workload import load_workload
from minga.testing.worlds import train_in_threads
from minga.workloads.cifar10 import VggLike
from minga.workloads.models import ResNet34


def kinds(model: nn.Sequential) -> list[str]:
    """Layers in words: conv 128, norm, pool, dropout, flatten, dense 10."""
    names = []
    for layer in model:
        match layer:
            case nn.Conv2d():
                assert layer.kernel_size == (3, 3) and layer.padding == (1, 1)
                names.append(f"conv {layer.out_channels}")
            case nn.Linear():
                names.append(f"dense {layer.out_features}")
            case nn.BatchNorm1d() | nn.BatchNorm2d():
                names.append("norm")
            case nn.Dropout():
                assert layer.p == 0.5
                names.append("dropout")
            case nn.MaxPool2d():
                names.append("pool")
            case nn.Flatten():
                names.append("flatten")
            case nn.ReLU():
                names[-1] += " relu"
    return names


def test_the_thesis_network_layer_for_layer() -> None:
    expected = ["conv 128 relu"] * 3 + ["norm", "pool"] + ["conv 256 relu"] * 3 + ["norm", "pool"]
    expected += ["conv 256 relu"] * 2 + ["conv 384 relu", "dropout", "flatten", "norm", "dropout"]
    expected += ["dense 1024 relu", "dense 512 relu", "norm", "dropout", "dense 10"]
    assert kinds(VggLike()) == expected


def test_cifar10_reads_the_six_files_and_learns_from_bytes(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    directory = tmp_path / "cifar10"
    directory.mkdir()
    for name in [*(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin"]:
        records = generator.integers(0, 256, (2, 3073), dtype=np.uint8)
        records[:, 0] %= 10
        (directory / name).write_bytes(records.tobytes())
    workload = load_workload("cifar10-vgg", str(tmp_path))
    assert (len(workload.train), len(workload.test), workload.batch) == (10, 2, 64)  # type: ignore[arg-type]
    seen = []
    outputs, classes = workload.predict(lambda pictures: seen.append(pictures) or pictures, workload.train[:])  # type: ignore
    assert outputs.dtype == torch.float32 and classes.dtype == torch.int64
    # Black is about two deviations below the mean, white about two above.
    assert -2.5 < float(seen[0].min()) < -1.5 and 1.5 < float(seen[0].max()) < 2.5


def folder_of_fish(place: Path, each: int = 16) -> Path:
    """Light and dark ones."""
    generator = np.random.default_rng(0)
    for number, name in enumerate(["cod", "trout"]):
        (place / name).mkdir(parents=True)
        for index in range(each):
            picture = generator.integers(0, 60, (30, 40), dtype=np.uint8) + 180 * number
            Image.fromarray(picture.astype(np.uint8)).save(place / name / f"{index}.png")
    return place


@pytest.mark.parametrize("inside", ["fish", ""])
def test_fish_are_read_from_their_folder_or_from_any(tmp_path: Path, inside: str) -> None:
    folder_of_fish(tmp_path / inside, each=100)
    workload = load_workload("fish-resnet34", str(tmp_path))
    assert [len(part) for part in (workload.train, workload.test)] == [170, 26]  # type: ignore[arg-type]
    assert len(workload.further_tests[0].data) == 4  # type: ignore[arg-type]
    picture, _ = workload.train[0]
    assert picture.shape == (1, 148, 197)
    assert sum(parameter.numel() for parameter in workload.model().parameters()) == 21_283_017 - 7 * 513
    assert workload.main_metric == "accuracy"


def test_fish_as_they_are_fetched(tmp_path: Path) -> None:
    for name in ("cod", "trout"):
        place = folder_of_fish(tmp_path / "archive" / name, each=10)
        (tmp_path / "fish" / "pictures" / name).mkdir(parents=True)
        (place / "cod").rename(tmp_path / "fish" / "pictures" / name / f"{name} GT")
        (place / "trout").rename(tmp_path / "fish" / "pictures" / name / name)  # photographs, which are left out
    workload = load_workload("fish-resnet34", str(tmp_path))
    assert len(workload.train) + len(workload.test) == 20  # type: ignore[arg-type]
    assert workload.train.classes == ["cod", "trout"]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        (["train", "validation", "test"], (["train"], ["test"], ["validation"])),
        (["train", "val"], (["train"], ["val"], [])),
    ],
)
def test_parts_that_a_folder_has_are_taken_as_they_are(
    tmp_path: Path, parts: list[str], expected: tuple[list[str], list[str], list[str]]
) -> None:
    """They were classes once: the network learned to tell what is to train on from what is to test on."""
    for part in parts:
        folder_of_fish(tmp_path / part, each=3)
    workload = load_workload("fish-resnet34", str(tmp_path))
    further = [test.data for test in workload.further_tests]
    found = [workload.train, workload.test, *further]
    assert workload.train.classes == ["cod", "trout"]  # type: ignore[attr-defined]
    assert [len(each) for each in found] == [6] * len(found)  # type: ignore[arg-type]
    names = [sorted({name.partition("/")[0] for name in each.names}) for each in found]  # type: ignore[attr-defined]
    assert names == [each for each in expected if each]


def test_pictures_to_test_on_without_classes_are_no_part(tmp_path: Path) -> None:
    """As competitions hand them out; some of the others are tested on instead."""
    folder_of_fish(tmp_path / "train", each=100)
    (tmp_path / "test").mkdir()
    Image.new("L", (40, 30)).save(tmp_path / "test" / "1.png")
    workload = load_workload("fish-resnet34", str(tmp_path))
    assert [len(part) for part in (workload.train, workload.test)] == [170, 26]  # type: ignore[arg-type]


def test_a_prepared_set_is_taken_as_it_is(tmp_path: Path) -> None:
    damaged = folder_of_fish(tmp_path / "pictures", each=20) / "cod" / "damaged.png"
    damaged.write_bytes(b"no picture")
    whole = load_workload("fish-resnet34", str(tmp_path / "pictures"))
    parts: list[Any] = [whole.train, whole.test, *(test.data for test in whole.further_tests)]
    with pytest.raises(DataError, match=rf"{damaged}: it can't be read.* minga data prepare"):
        for part in parts:
            list(part)
    small = dataclasses.replace(origin_of_path(tmp_path / "pictures"), picture=PictureShape(width=20, height=15))
    prepare(small, tmp_path / "set", Recipe(split=(0.6, 0.2, 0.2)))
    workload = load_workload("fish-resnet34", str(tmp_path / "set"))
    validated = workload.further_tests[0].data
    assert sum(len(part) for part in (workload.train, validated, workload.test)) == 40  # type: ignore[arg-type]
    assert len(workload.test) == 8  # type: ignore[arg-type]
    outputs, classes = workload.predict(workload.model(), workload.train.read_batch(torch.tensor([0, 5])))  # type: ignore
    assert outputs.shape == (2, 2) and classes.shape == (2,)


def test_a_prepared_set_without_test_is_refused(tmp_path: Path) -> None:
    folder_of_fish(tmp_path / "pictures", each=3)
    prepare(origin_of_path(tmp_path / "pictures"), tmp_path / "set", Recipe(split=(1.0, 0.0, 0.0)))
    with pytest.raises(DataError, match="lacks a part to train or to test on; prepare it with --split"):
        load_workload("fish-resnet34", str(tmp_path / "set"))


def test_a_prepared_table_is_no_set_of_pictures(tmp_path: Path) -> None:
    rows = "\n".join(f"{number},{number % 2}" for number in range(40))
    (tmp_path / "table.csv").write_text(f"width,kind\n{rows}\n")
    origin = dataclasses.replace(origin_of_path(tmp_path / "table.csv"), table=TableChoice(target="kind"))
    prepare(origin, tmp_path / "set", Recipe())
    with pytest.raises(DataError, match=r"prepared set of inputs 1 with 2 classes, not of pictures"):
        load_workload("fish-resnet34", str(tmp_path / "set"))


def test_where_there_are_no_fish_it_is_told_how_to_get_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mnist").mkdir()
    with pytest.raises(DataError, match=r"has no pictures.*Fetch the fish \(minga data fetch fish\)"):
        load_workload("fish-resnet34", str(tmp_path))
    monkeypatch.setenv("MINGA_DATA", str(tmp_path))
    with pytest.raises(DataError, match=r"there is no .*fish: fetch the fish"):
        load_workload("fish-resnet34", None)


def test_too_few_fish_are_told(tmp_path: Path) -> None:
    folder_of_fish(tmp_path, each=1)
    with pytest.raises(DataError, match="2 pictures are too few"):
        load_workload("fish-resnet34", str(tmp_path))


def test_resnet34_has_34_layers() -> None:
    model = ResNet34()
    dense = [module for module in model.modules() if isinstance(module, nn.Linear)]
    main = [module for module in model.modules() if isinstance(module, nn.Conv2d) and module.kernel_size != (1, 1)]
    assert len(main) + len(dense) == 34
    assert sum(parameter.numel() for parameter in model.parameters()) == 21_283_017
    with torch.no_grad():
        assert model.eval()(torch.zeros(1, 1, 148, 197)).shape == (1, 9)
        halves = nn.Sequential(*list(model)[:-3])(torch.zeros(1, 1, 148, 197))
    assert halves.shape == (1, 512, 5, 7)  # a thirty-second of each side


def test_resnet34_trains_on_two_nodes(tmp_path: Path) -> None:
    workload = load_workload("fish-resnet34", str(folder_of_fish(tmp_path)))
    experiment = minga.Experiment(
        workload="fish-resnet34",
        strategy="ring",  # type: ignore[arg-type]
        cluster=minga.Cluster(nodes=2),
        training=minga.Training(steps=1, total_batch=4, evaluate_every=0),
    )
    first, second = train_in_threads(experiment, workload, timeout_seconds=120)
    torch.testing.assert_close(first.parameters, second.parameters, rtol=0, atol=0)
