"""What the built-in workloads train on, bit for bit: however files are read, the same samples in the same order."""

from __future__ import annotations

import hashlib
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from made_photographs import make_flickr8k
from PIL import Image

from minga.data.fingerprint import fingerprint
from minga.workloads import built_in


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory with a little of everything, made of numbers that any machine makes alike."""
    place = make_flickr8k(tmp_path_factory.mktemp("data"), photographs=12)
    for folder in ("mnist", "cifar10", "text"):
        (place / folder).mkdir()
    for part, samples in (("train", 6), ("t10k", 4)):
        header = bytes([0, 0, 8, 3]) + struct.pack(">3I", samples, 28, 28)
        (place / "mnist" / f"{part}-images-idx3-ubyte").write_bytes(header + noise(part, samples * 784))
        header = bytes([0, 0, 8, 1]) + struct.pack(">I", samples)
        (place / "mnist" / f"{part}-labels-idx1-ubyte").write_bytes(header + bytes(range(samples)))
    for name in (*(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin"):
        records = (bytes([number]) + noise(f"{name}{number}", 3072) for number in range(2))
        (place / "cifar10" / name).write_bytes(b"".join(records))
    for name in ("cod", "deep/er", "trout"):
        (place / "fish" / name).mkdir(parents=True)
        for number in range(12):
            # As large as the workload wants them: how others are resized may change with Pillow.
            pixels = np.frombuffer(noise(f"{name}{number}", 148 * 197), dtype=np.uint8).reshape(148, 197)
            Image.fromarray(pixels).save(place / "fish" / name / f"{number}.png")
    text = "".join(f"{number} little ships, and {number * number} waves.\n" for number in range(400))
    (place / "text" / "tinyshakespeare.txt").write_text(text)
    return place


def noise(seed: str, count: int) -> bytes:
    return hashlib.shake_128(seed.encode()).digest(count)


@pytest.mark.parametrize(
    ("name", "train", "test"),
    [
        ("digits", "1438 samples, 5358117ed3b1", "359 samples, e84cd6c0d813"),
        ("digits-labels", "1438 samples, 95e5dd11224d", "359 samples, 586c61bd120f"),
        ("digits-autoencoder", "1438 samples, 82c0317b839a", "359 samples, f0e0095f4428"),
        ("counting", "1660 samples, fbcdc95c987c", "415 samples, d08c4c3f077c"),
        ("mnist", "6 samples, 457e4a77fc7d", "4 samples, 36eb95e00252"),
        ("cifar10-vgg", "10 samples, 5cbff0581a78", "2 samples, 932f71bad892"),
        ("fish-resnet34", "30 samples, 1aec3e7e02a4", "6 samples, fc889de82eee"),
        ("flickr8k-captions", "24 samples, 95c875ebad91", "6 samples, df4353a8496e"),
        ("shakespeare", "194 samples, a5d45297d6e1", "21 samples, 7c662c59ab9d"),
        ("shakespeare-gpt", "97 samples, d6cb6b22a4fb", "10 samples, ceae87a653b8"),
    ],
)
def test_the_samples_stay_the_same(place: Path, name: str, train: str, test: str) -> None:
    workload: Any = built_in(name, place)
    assert (fingerprint(workload.train), fingerprint(workload.test)) == (train, test)


@pytest.mark.parametrize("name", ["mnist", "cifar10-vgg", "fish-resnet34"])
def test_pictures_are_prepared_as_those_that_are_trained_with(place: Path, name: str) -> None:
    workload: Any = built_in(name, place)
    sample = workload.train[0][0]
    if name == "mnist":
        pixels = np.zeros((28, 28), dtype=np.uint8)
        pixels[9:19, 9:19] = 255
        expected = (torch.from_numpy(pixels)[None].float() / 255 - 0.1307) / 0.3081
    elif name == "cifar10-vgg":
        pixels, expected = sample.permute(1, 2, 0).numpy(), sample
    else:
        pixels, expected = (sample[0].float() * 255).round().to(torch.uint8).numpy(), sample
    prepared = workload.prepare(Image.fromarray(pixels))
    assert prepared.dtype == sample.dtype
    torch.testing.assert_close(prepared, expected)
    if name == "mnist":
        torch.testing.assert_close(workload.prepare(Image.fromarray(255 - pixels)), expected)


def test_classes_have_their_names(place: Path) -> None:
    assert built_in("mnist", place).classes == tuple("0123456789")
    assert built_in("cifar10-vgg", place).classes[:2] == ("airplane", "automobile")
    assert len(built_in("fish-resnet34", place).classes) == 3


@pytest.mark.parametrize("name", ["mnist", "fish-resnet34", "flickr8k-captions", "shakespeare"])
def test_what_they_take_and_give_is_found(place: Path, name: str) -> None:
    workload = built_in(name, place)
    described = workload.describe(workload.model())
    (inputs,), (outputs,) = described.inputs, described.outputs
    assert inputs.name == "inputs" and outputs.name == "outputs" and outputs.dtype == "float32"
