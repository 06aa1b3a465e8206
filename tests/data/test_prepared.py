"""Prepared sets as data sets of torch: the right samples, a batch at a time, without the memory for all of them."""

from __future__ import annotations

import mmap
import os
import subprocess
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from minga.data.batches import batches_in_order, fetch
from minga.data.fingerprint import fingerprint
from minga.data.formats import origin_of_path
from minga.data.order import Blocks
from minga.data.prepared import maps as maps_module
from minga.data.prepared.dataset import PreparedDataset
from minga.data.prepared.manifest import PreparedManifest
from minga.data.prepared.shard_file import Field, ShardLayout
from minga.data.preparing import prepare as prepare_module
from minga.data.preparing.prepare import Recipe, prepare
from minga.errors import ConfigError, DataError

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def numbers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """1,000 rows (i, 2i) with the target 3i, 800 of them to train on, in several shards."""
    folder = tmp_path_factory.mktemp("numbers")
    (folder / "x.csv").write_text("a,b,y\n" + "".join(f"{i},{2 * i},{3 * i}.5\n" for i in range(1000)))
    prepare(origin_of_path(folder / "x.csv"), folder / "out", Recipe(shard_bytes=1024, normalise=True))
    return folder / "out"


def plain(numbers: Path, part: str = "train") -> PreparedDataset:
    return PreparedDataset(numbers, part, normalise=False)


def rows_are_right(inputs: torch.Tensor, targets: torch.Tensor) -> bool:
    return torch.equal(inputs[:, 1], 2 * inputs[:, 0]) and torch.equal(targets, 3 * inputs[:, 0] + 0.5)


def test_every_sample_once_and_whole(numbers: Path) -> None:
    found = []
    for part in ("train", "validation", "test"):
        dataset = plain(numbers, part)
        inputs, targets = dataset.read_batch(torch.arange(len(dataset)))
        assert rows_are_right(inputs, targets)
        found += inputs[:, 0].long().tolist()
    assert sorted(found) == list(range(1000))


@pytest.mark.parametrize("indices", [[0], [799, 0, 400, 0], list(range(60, 70)), [3, 2, 1]])
def test_a_batch_is_its_samples_in_the_order_that_was_asked_for(numbers: Path, indices: Sequence[int]) -> None:
    dataset = plain(numbers)
    inputs, targets = fetch(dataset, torch.tensor(indices), CPU)
    for row, index in enumerate(indices):
        assert torch.equal(inputs[row], dataset[index][0]) and torch.equal(targets[row], dataset[index][1])
    assert rows_are_right(inputs, targets)


def test_nothing_of_a_batch_refers_to_the_file(numbers: Path) -> None:
    dataset = plain(numbers)
    inputs, _ = dataset.read_batch(torch.tensor([5]))
    before = dataset[5][0].clone()
    inputs.zero_()
    assert torch.equal(dataset[5][0], before)
    assert dataset.raw(torch.tensor([5]))["inputs"].untyped_storage().nbytes() == 8


def test_counting_from_the_end_and_beyond(numbers: Path) -> None:
    dataset = plain(numbers)
    assert torch.equal(dataset[-1][0], dataset[799][0])
    with pytest.raises(IndexError):
        dataset[800]


def test_normalised_by_the_training_part(numbers: Path) -> None:
    train, test = PreparedDataset(numbers), PreparedDataset(numbers, "test")
    inputs, targets = train.read_batch(torch.arange(len(train)))
    assert inputs.mean(dim=0).tolist() == pytest.approx([0, 0], abs=1e-4)
    assert inputs.std(dim=0, unbiased=False).tolist() == pytest.approx([1, 1], abs=1e-4)
    mean, deviation = train.manifest.normalisation.mean, train.manifest.normalisation.deviation  # type: ignore[union-attr]
    expected = (plain(numbers, "test")[0][0] - torch.tensor(mean)) / torch.tensor(deviation)
    assert torch.allclose(test[0][0], expected, atol=1e-4)
    assert float(targets.max()) > 100


def test_pictures_become_fractions(tmp_path: Path) -> None:
    from PIL import Image

    for index in range(10):
        (tmp_path / "in" / "a").mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((2, 3, 3), 51, dtype=np.uint8)).save(tmp_path / "in" / "a" / f"{index}.png")
    prepare(origin_of_path(tmp_path / "in"), tmp_path / "out", Recipe())
    inputs, targets = PreparedDataset(tmp_path / "out").read_batch(torch.tensor([0, 1]))
    assert (
        inputs.shape == (2, 3, 2, 3)
        and inputs.dtype == torch.float32
        and float(inputs[0, 0, 0, 0]) == pytest.approx(0.2)
    )
    assert targets.dtype == torch.int64
    with pytest.raises(DataError, match="prepare it with --normalise"):
        PreparedDataset(tmp_path / "out", normalise=True)


def test_numbers_of_characters_stay_whole(tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_text("abcd" * 200)
    prepare(origin_of_path(tmp_path / "x.txt"), tmp_path / "out", Recipe())
    inputs, targets = PreparedDataset(tmp_path / "out")[0]
    assert inputs.dtype == torch.int64 and inputs[:5].tolist() == [0, 1, 2, 3, 0] and targets[0] == 1


@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=pytest.mark.slow)])
def test_torchs_own_loader(numbers: Path, workers: int) -> None:
    loader = DataLoader(
        plain(numbers), batch_size=33, num_workers=workers, multiprocessing_context="spawn" if workers else None
    )
    seen = []
    for inputs, targets in loader:
        assert rows_are_right(inputs, targets)
        seen += inputs[:, 0].long().tolist()
    assert len(set(seen)) == 800


def test_in_order_for_evaluation(numbers: Path) -> None:
    dataset = plain(numbers)
    batches = list(batches_in_order(dataset, 10, 300, 64, CPU))
    assert torch.equal(torch.cat([inputs for inputs, _ in batches]), dataset.read_batch(torch.arange(10, 300))[0])


def test_the_fingerprint_is_of_all_samples(numbers: Path, tmp_path: Path) -> None:
    assert fingerprint(plain(numbers)) == fingerprint(PreparedDataset(numbers))
    assert fingerprint(plain(numbers)).startswith("800 samples, ")
    (tmp_path / "x.csv").write_text("a,b,y\n" + "".join(f"{i},{2 * i},{3 * i}.25\n" for i in range(1000)))
    prepare(origin_of_path(tmp_path / "x.csv"), tmp_path / "out", Recipe(shard_bytes=1024, normalise=True))
    assert fingerprint(plain(tmp_path / "out")) != fingerprint(plain(numbers))


def test_what_is_damaged_is_told_at_the_door(numbers: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no prepared set"):
        PreparedDataset(tmp_path)
    with pytest.raises(ConfigError, match=r"unknown part .*Did you mean 'train'"):
        PreparedDataset(numbers, "tain")
    copied = tmp_path / "copy"
    subprocess.run(["cp", "-r", numbers, copied], check=True)
    shard = copied / PreparedManifest.load(copied).parts["train"].shards[0].file
    content = shard.read_bytes()
    shard.write_bytes(content[:-1])
    with pytest.raises(DataError, match="missing or cut; see minga data verify"):
        PreparedDataset(copied)
    shard.write_bytes(content.replace(b"F32", b"I32", 1))
    with pytest.raises(DataError, match="not what the manifest says"):
        PreparedDataset(copied).read_batch(torch.arange(800))


def test_more_shards_than_open_maps(numbers: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maps_module, "_OPEN_MAPS", 3)
    dataset = plain(numbers)
    inputs, targets = dataset.read_batch(torch.randperm(800))
    assert rows_are_right(inputs, targets) and len(dataset._maps._open) == 3


@pytest.mark.slow
def test_pages_are_let_go(tmp_path: Path) -> None:
    """Reading 200 MB must not make the process that much larger; without letting go it does."""
    program = textwrap.dedent(
        """
        import sys, psutil, torch
        from minga.data.prepared import dataset, maps
        if sys.argv[2] == "keep":
            maps._LET_GO_BYTES = 1 << 60
        data = dataset.PreparedDataset(sys.argv[1], "train")
        data.read_batch(torch.arange(10))
        before = psutil.Process().memory_info().rss
        most = 0
        for start in range(0, len(data), 5):
            data.raw(torch.arange(start, min(start + 5, len(data))))
            most = max(most, psutil.Process().memory_info().rss)
        print(most - before)
        """
    )
    large_set(tmp_path / "large", samples=200, sample_bytes=1 << 20)
    grown = {
        how: int(
            subprocess.run(
                [sys.executable, "-c", program, tmp_path / "large", how], capture_output=True, text=True, check=True
            ).stdout
        )
        for how in ("keep", "let go")
    }
    assert grown["keep"] > 150 << 20
    assert grown["let go"] < 120 << 20


def large_set(folder: Path, *, samples: int, sample_bytes: int) -> None:
    """A prepared set of random bytes, made without a reader."""
    from minga.data.prepared.manifest import PreparedPart, ShardFile

    folder.mkdir()
    fields = {"inputs": Field("uint8", (sample_bytes,)), "targets": Field("int64", ())}
    layout = ShardLayout.of(fields, samples)
    with (folder / "train-00000.safetensors").open("wb") as file:
        file.write(layout.header)
        file.write(os.urandom(1 << 16))
        file.truncate(layout.size)
    shard = ShardFile(file="train-00000.safetensors", samples=samples, bytes=layout.size, sha256="")
    part = PreparedPart(samples=samples, classes={}, shards=(shard,))
    (folder / "manifest.json").write_text(
        PreparedManifest(name="large", fields=fields, parts={"train": part}).to_json()
    )


def test_small_sets_are_shuffled_as_a_whole_and_large_ones_in_blocks(
    numbers: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert plain(numbers).blocks is None
    monkeypatch.setattr(prepare_module, "_LARGE_BYTES", 1000)
    monkeypatch.setattr(prepare_module, "_BLOCK_BYTES", 120)
    (tmp_path / "x.csv").write_text("a,y\n" + "".join(f"{i},{i}.5\n" for i in range(1000)))
    prepare(origin_of_path(tmp_path / "x.csv"), tmp_path / "out", Recipe(dtype="float32"))
    assert plain(tmp_path / "out").blocks == Blocks(block=15, window=64)


def test_shards_begin_at_places_that_processors_like(numbers: Path) -> None:
    dataset = plain(numbers)
    for shard in dataset.manifest.parts["train"].shards:
        assert min(dataset.manifest.layout(shard).starts.values()) % 64 == 0
    assert mmap.PAGESIZE % 64 == 0


def test_only_what_a_batch_needs_is_asked_for() -> None:
    layout = ShardLayout.of({"inputs": Field("uint8", (40_000,)), "targets": Field("int64", ())}, 1000)
    page = mmap.PAGESIZE
    asked = list(maps_module.pieces(layout, "inputs", np.array([3, 4, 500])))
    assert len(asked) == 2 and all(start % page == 0 for start, _ in asked)
    assert sum(length for _, length in asked) <= 3 * 40_000 + 4 * page
    for row in (3, 4, 500):
        first, nbytes = layout.place("inputs", row)
        assert any(start <= first and first + nbytes <= start + length for start, length in asked)
    assert len(list(maps_module.pieces(layout, "targets", np.arange(0, 1000, 7)))) == 1  # neighbours come along
    last_start, last_length = list(maps_module.pieces(layout, "inputs", np.array([999])))[-1]
    assert last_start + last_length == layout.size
