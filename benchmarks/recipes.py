"""The workloads of `time_to_accuracy.py` and `theses.py`: built-in ones on a part of their data, minutes of one node.

minga train benchmarks/recipes.py:fashion_mnist --data DIR --epochs 5 --total-batch 128
"""

from __future__ import annotations

import contextlib
import dataclasses
import tempfile
from collections.abc import Iterable
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.optim import Optimizer
from torch.utils.data import TensorDataset

from minga import Workload
from minga.base.user_files import names_in_file
from minga.data.directory import dataset_directory
from minga.data.formats.arrays import read_idx
from minga.workloads import built_in
from minga.workloads.text import shakespeare_characters


def _first(name: str, data: Path | None, trained: int, tested: int | None = None) -> Workload:
    """A built-in workload with the first `trained` samples of its training set."""
    whole = built_in(name, data)
    assert isinstance(whole.train, TensorDataset) and isinstance(whole.test, TensorDataset)
    return dataclasses.replace(
        whole,
        train=TensorDataset(*(tensor[:trained] for tensor in whole.train.tensors)),
        test=TensorDataset(*(tensor[:tested] for tensor in whole.test.tensors)),
    )


def _twice_the_rate(parameters: Iterable[nn.Parameter]) -> Optimizer:
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)


def fashion_mnist(data: Path | None = None) -> Workload:
    # Of 128 samples each of two nodes has 64, which a core computes as well as 128: less would not be compared fairly.
    return dataclasses.replace(_first("fashion-mnist-cnn", data, 12_800), optimizer=_twice_the_rate)


def shakespeare(data: Path | None = None) -> Workload:
    # Nearly all of the text, few epochs: of a part of it the model would soon know each line by heart.
    return _first("shakespeare", data, 15_360)


def fashion_mnist_quick(data: Path | None = None) -> Workload:
    return dataclasses.replace(_first("fashion-mnist-cnn", data, 2_560, 2_000), optimizer=_twice_the_rate)


def shakespeare_quick(data: Path | None = None) -> Workload:
    # With fewer steps every model says nothing but spaces: all contestants then have exactly the same accuracy.
    return _first("shakespeare", data, 2_048, 512)


class WideConvNet(nn.Sequential):
    """Two convolutions with BatchNorm and a wide dense layer for pictures of 28x28: 2,435,914 parameters."""

    def __init__(self) -> None:
        super().__init__(
            nn.Conv2d(1, 32, 3, padding=1),
            nn.BatchNorm2d(32),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(32, 64, 3, padding=1),
            nn.BatchNorm2d(64),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(3136, 768),
            nn.ReLU(),
            nn.Linear(768, 10),
        )


class CharacterGRU(nn.Module):
    """A recurrent network that tells the next character: 0.27 million parameters for 65 characters."""

    def __init__(self, characters: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(characters, 64)
        self.recurrent = nn.GRU(64, 256, batch_first=True)
        self.output = nn.Linear(256, characters)

    def forward(self, numbers: torch.Tensor) -> torch.Tensor:
        outputs: torch.Tensor = self.output(self.recurrent(self.embedding(numbers))[0])
        return outputs


def wide_convolutions(data: Path | None = None) -> Workload:
    return dataclasses.replace(_first("fashion-mnist-cnn", data, 10_240), model=WideConvNet, optimizer=_half_the_rate)


def _half_the_rate(parameters: Iterable[nn.Parameter]) -> Optimizer:
    return torch.optim.SGD(parameters, lr=0.02, momentum=0.9)


def character_gru(data: Path | None = None) -> Workload:
    text = _first("shakespeare", data, 10_240)
    characters = len(shakespeare_characters(data))
    return dataclasses.replace(text, model=partial(CharacterGRU, characters), optimizer=_adam)


def _adam(parameters: Iterable[nn.Parameter]) -> Optimizer:
    return torch.optim.Adam(parameters, lr=0.004)


def cifar10(data: Path | None = None) -> Workload:
    return _first("cifar10-vgg", data, 4_000)


def cifar10_quick(data: Path | None = None) -> Workload:
    return _first("cifar10-vgg", data, 128, 64)


def keras_cifar10(data: Path | None = None) -> Workload:
    return _first_of_keras_example(data, 4_000, 2_000)


def keras_cifar10_quick(data: Path | None = None) -> Workload:
    return _first_of_keras_example(data, 128, 64)


def _first_of_keras_example(data: Path | None, trained: int, tested: int) -> Workload:
    """`examples/keras_cifar10.py` on the first of its real pictures."""
    import minga.keras

    example = names_in_file(str(Path(__file__).parents[1] / "examples" / "keras_cifar10.py"))
    directory = dataset_directory("cifar10", data, needs=[*example["TRAINING_FILES"], "test_batch.bin"])
    parts = []
    for files, count in ((example["TRAINING_FILES"][:1], trained), (["test_batch.bin"], tested)):
        pictures, classes = example["real_pictures"](directory, files)
        parts.append((pictures[:count], classes[:count]))
    return minga.keras.workload(
        example["network"], train=parts[0], test=parts[1], name="keras-cifar10", batch=64, epochs=3
    )


def pictures_in_folders(data: Path | None = None) -> Workload:
    """ResNet-34 on a folder of PNG files: Fashion-MNIST's, which are easily had, made as large as fish."""
    return built_in("fish-resnet34", folder_of_pictures(data, each=60))


def pictures_in_folders_quick(data: Path | None = None) -> Workload:
    return built_in("fish-resnet34", folder_of_pictures(data, each=4))


def folder_of_pictures(data: Path | None, each: int) -> Path:
    """The first `each` of every class as files, named when they are complete: several ranks may make them at once."""
    from PIL import Image

    folder = Path(__file__).parents[1] / "runs" / "benchmarks" / f"pictures_{each}"
    if folder.is_dir():
        return folder
    directory = dataset_directory("fashion-mnist", data, needs=["train-images-idx3-ubyte", "train-labels-idx1-ubyte"])
    pictures = read_idx(directory / "train-images-idx3-ubyte")
    classes = read_idx(directory / "train-labels-idx1-ubyte")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as place:
        for number in range(10):
            made = Path(place) / "complete" / f"class_{number}"
            made.mkdir(parents=True)
            for place_of, at in enumerate(np.flatnonzero(classes == number)[:each].tolist()):
                picture = Image.fromarray(pictures[at]).resize((590, 445), Image.Resampling.BICUBIC)
                picture.save(made / f"{place_of:04}.png")
        with contextlib.suppress(OSError):  # another rank was first
            (Path(place) / "complete").rename(folder)
    return folder
