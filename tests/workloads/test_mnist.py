"""The workloads on MNIST and Fashion-MNIST, on made-up files in their format."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
import torch
from torch.utils.data import TensorDataset

from minga.errors import DataError
from minga.runs.workload import load_workload


@pytest.fixture
def data(tmp_path: Path) -> Path:
    generator = torch.Generator().manual_seed(0)
    for dataset in ("mnist", "fashion-mnist"):
        (tmp_path / dataset).mkdir()
        for split, samples in {"train": 6, "t10k": 4}.items():
            pictures = torch.randint(0, 256, (samples * 784,), generator=generator).tolist()
            classes = [sample % 10 for sample in range(samples)]
            header = bytes([0, 0, 8, 3]) + struct.pack(">3I", samples, 28, 28)
            (tmp_path / dataset / f"{split}-images-idx3-ubyte").write_bytes(header + bytes(pictures))
            header = bytes([0, 0, 8, 1]) + struct.pack(">I", samples)
            (tmp_path / dataset / f"{split}-labels-idx1-ubyte").write_bytes(header + bytes(classes))
    return tmp_path


@pytest.mark.parametrize("name", ["mnist-lenet5", "mnist-mlp", "mnist-cnn", "fashion-mnist-cnn"])
def test_the_network_takes_the_pictures(data: Path, name: str) -> None:
    workload = load_workload(name, str(data))
    assert workload.name == name
    assert isinstance(workload.train, TensorDataset)
    pictures, classes = workload.train.tensors
    assert pictures.shape == (6, 1, 28, 28) and classes.tolist() == [0, 1, 2, 3, 4, 5]
    outputs, targets = workload.predict(workload.model(), (pictures, classes))
    assert outputs.shape == (6, 10) and torch.equal(targets, classes)
    assert workload.batch == 64 and workload.schedule is not None


def test_nielsen_has_the_recipe_of_the_book(data: Path) -> None:
    workload = load_workload("mnist-nielsen", str(data))
    optimizer = workload.optimizer(workload.model().parameters())
    assert workload.batch == 10 and optimizer.defaults["lr"] == 0.1 and optimizer.defaults["momentum"] == 0


@pytest.mark.parametrize(
    ("samples", "side", "label", "says"),
    [
        (2, 28, 25, "2 test pictures of 28x28, the highest class being 25"),
        (2, 32, 9, "2 test pictures of 32x32"),
        (0, 28, 0, "0 test pictures"),
    ],
)
def test_another_data_set_in_files_of_its_names(data: Path, samples: int, side: int, label: int, says: str) -> None:
    header = bytes([0, 0, 8, 3]) + struct.pack(">3I", samples, side, side)
    (data / "mnist" / "t10k-images-idx3-ubyte").write_bytes(header + bytes(samples * side * side))
    header = bytes([0, 0, 8, 1]) + struct.pack(">I", samples)
    (data / "mnist" / "t10k-labels-idx1-ubyte").write_bytes(header + bytes([label] * samples))
    with pytest.raises(DataError, match=f"{says}.* needs pictures of 28x28, of 10 classes .*minga data fetch mnist"):
        load_workload("mnist-mlp", str(data))
