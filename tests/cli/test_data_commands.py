"""`minga data list`, `fetch` and `verify`, as people and machines use them."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from minga.runs.workload import load_workload

Minga = Callable[..., Any]


@pytest.fixture
def text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a text that passes for tiny Shakespeare."""
    import hashlib

    from minga.data import sources

    content = b"To be, or not to be\n" * 500
    file = sources.KnownFile(name="tinyshakespeare.txt", bytes=10_000, sha256=hashlib.sha256(content).hexdigest())
    known = sources.KnownDataset(
        name="tiny-shakespeare", title="plays", reader="text", homepage="http://plays", licence="free to all",
        citation="Shakespeare", folder="text", workloads=("shakespeare",), files=(file,),
    )  # fmt: skip
    monkeypatch.setattr(sources, "known_datasets", lambda: {"tiny-shakespeare": known})
    (tmp_path / "stick").mkdir()
    (tmp_path / "stick" / "tinyshakespeare.txt.gz").write_bytes(gzip.compress(content))
    return tmp_path / "stick"


def test_the_list_for_people(minga: Minga) -> None:
    done = minga("data", "list")
    assert done.returncode == 0
    for word in ("mnist", "concrete-cracks", "MIT", "unknown", "minga data fetch NAME"):
        assert word in done.stdout


def test_the_list_for_machines(minga: Minga) -> None:
    listed = json.loads(minga("data", "list", "--json", "--data", "here").stdout)
    assert listed["data"] == "here"
    by_name = {entry["name"]: entry for entry in listed["datasets"]}
    assert by_name["mnist"]["bytes"] == 54_950_048 and by_name["mnist"]["here"] is False
    assert "mnist-cnn" in by_name["mnist"]["workloads"] and "fashion-mnist" not in by_name["mnist"]["workloads"]


def test_fetched_verified_listed_and_read(minga: Minga, text: Path) -> None:
    done = minga("data", "fetch", "tiny-shakespeare", "--from", str(text), "--data", "data")
    assert done.returncode == 0, done.stderr
    for word in ("free to all", "fetched", "tinyshakespeare.txt.gz", "minga train shakespeare --data data"):
        assert word in done.stdout
    assert minga("data", "verify", "tiny-shakespeare", "--data", "data").returncode == 0
    assert json.loads(minga("data", "list", "--json", "--data", "data").stdout)["datasets"][0]["here"] is True
    train: Any = load_workload("shakespeare", "data").train
    assert len(train) == 9 * 1000 // 64 and train[0][0].shape == (64,)


def test_damage_is_exit_code_1(minga: Minga, text: Path, tmp_path: Path) -> None:
    minga("data", "fetch", "tiny-shakespeare", "--from", str(text), "--data", "data")
    (tmp_path / "data" / "text" / "tinyshakespeare.txt.gz").write_bytes(gzip.compress(b"To be, or what?"))
    done = minga("data", "verify", "tiny-shakespeare", "--data", "data")
    assert done.returncode == 1
    assert "damaged" in done.stdout and "minga data fetch tiny-shakespeare --data data" in done.stdout
    found = json.loads(minga("data", "verify", "tiny-shakespeare", "--data", "data", "--json").stdout)
    assert found["whole"] is False and found["findings"][0]["state"] == "damaged"


def test_where_data_goes_by_default(minga: Minga, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "home"))
    fetched = json.loads(minga("data", "fetch", "tiny-shakespeare", "--from", str(text), "--json").stdout)
    assert fetched["files"][0]["path"] == str(tmp_path / "home" / "minga" / "data" / "text" / "tinyshakespeare.txt.gz")
    assert minga("train", "shakespeare", "--steps", "1", "--json", "--strategy", "single").returncode == 0


ERRORS = {
    "unknown": (["data", "fetch", "mnits"], ["unknown data set 'mnits'", "Did you mean 'mnist'"]),
    "nowhere": (["data", "fetch", "mnist", "--from", "nowhere"], ["nowhere", "no such folder"]),
    "link": (["data", "fetch", "mnist", "--link"], ["--link needs --from DIR"]),
    "not here": (["train", "mnist"], ["minga data fetch mnist", "--data DIR"]),
    "elsewhere": (["train", "shakespeare", "--data", "empty"], ["minga data fetch tiny-shakespeare --data empty"]),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors_say_what_is_possible(minga: Minga, name: str) -> None:
    Path("empty").mkdir()
    arguments, words = ERRORS[name]
    done = minga(*arguments)
    assert done.returncode == 2
    for word in words:
        assert word in done.stderr


@pytest.mark.parametrize("command", ["list", "fetch", "verify"])
def test_help_has_an_example(minga: Minga, command: str) -> None:
    done = minga("data", command, "--help")
    assert f"minga data {command}" in done.stdout and "--json" in done.stdout


def test_what_can_not_be_checked_is_not_called_whole(minga: Minga, tmp_path: Path) -> None:
    for name in ("cod GT", "trout GT"):
        (tmp_path / "data" / "fish" / "pictures" / name).mkdir(parents=True)
        (tmp_path / "data" / "fish" / "pictures" / name / "1.png").write_bytes(b"1")
    done = minga("data", "verify", "fish", "--data", "data")
    assert done.returncode == 0 and "is whole" not in done.stdout
    assert "nothing wrong was found, but not all of fish could be checked" in done.stdout


# --- preparing -----------------------------------------------------------------------------------------------------


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    """Two classes, dark and bright, and a file that is no picture."""
    import numpy as np
    from PIL import Image

    random = np.random.default_rng(0)
    for name, low in (("dark", 0), ("bright", 128)):
        (tmp_path / "pictures" / name).mkdir(parents=True)
        for number in range(50):
            pixels = random.integers(low, low + 128, (9, 12, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / "pictures" / name / f"{number}.png")
    (tmp_path / "pictures" / "dark" / "broken.png").write_bytes(b"no picture")
    return tmp_path / "pictures"


def test_pictures_prepared_verified_and_trained_on_two_nodes(minga: Minga, pictures: Path) -> None:
    done = minga(
        "data", "prepare", str(pictures), "--out", "prepared", "--resize", "8x8", "--grey", "--dtype", "float16",
        "--normalise", "--split", "80,0,20", "--jobs", "2",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    for word in ("bright", "40", "1 could not be used", "skipped.jsonl", "balance", "inputs: float16 1x8x8", "mean"):
        assert word in done.stdout
    assert minga("data", "verify", "prepared").returncode == 0
    Path("mine.py").write_text(
        "from torch import nn\n"
        "from minga import PreparedDataset, Workload\n"
        "workload = Workload(name='mine', train=PreparedDataset('prepared', 'train'),\n"
        "    test=PreparedDataset('prepared', 'test'), batch=8,\n"
        "    model=lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, 2)))\n"
    )
    trained = minga("train", "mine.py:workload", "--nodes", "2", "--strategy", "ring", "--epochs", "3", "--json")
    assert trained.returncode == 0, trained.stderr
    assert json.loads(trained.stdout)["metrics"]["accuracy"] > 0.9
    shard = next(Path("prepared").glob("train-*.safetensors"))
    shard.write_bytes(shard.read_bytes()[:-1] + b"x")
    assert minga("data", "verify", "prepared").returncode == 1


def test_what_was_prepared_for_machines(minga: Minga, tmp_path: Path) -> None:
    (tmp_path / "houses.csv").write_text("size,town,price\n" + "".join(f"{i},{'ab'[i % 2]},{i}.5\n" for i in range(20)))
    done = minga("data", "prepare", "houses.csv", "--out", "out", "--target", "price", "--json")
    made = json.loads(done.stdout)
    assert made["parts"]["train"]["samples"] == 16 and made["facts"]["columns"] == ["size", "town=a", "town=b"]
    assert made["licence"] == "unknown" and made["format"] == 1


PREPARE_ERRORS = {
    "nothing": (["nowhere"], ["neither a data set that Minga knows"]),
    "not fetched": (["mnist"], ["minga data fetch mnist"]),
    "size": (["pictures", "--resize", "big"], ["'big'", "197x148"]),
    "split": (["pictures", "--split", "1,2,3"], ["'1,2,3'", "85,2,13"]),
    "dtype": (["pictures", "--dtype", "float61"], ["float61", "Did you mean 'float16'"]),
    "column": (["x.csv", "--target", "prize"], ["'prize'", "Did you mean 'price'"]),
    "grey table": (["x.csv", "--grey"], ["--grey is for pictures, and x.csv is a table; leave it out"]),
    "target of pictures": (["pictures", "--target", "price"], ["--target is for tables, and pictures is a folder of"]),
    "pieces of a table": (["x.csv", "--context", "8"], ["--context is for texts"]),
    "exists": (["pictures", "--out", "pictures"], ["pictures exists already"]),
}


@pytest.mark.parametrize("name", PREPARE_ERRORS)
def test_errors_of_preparing_say_what_is_possible(minga: Minga, pictures: Path, tmp_path: Path, name: str) -> None:
    (tmp_path / "x.csv").write_text("size,price\n1,2\n")
    arguments, words = PREPARE_ERRORS[name]
    done = minga("data", "prepare", "--out", "out", *arguments)
    assert done.returncode == 2
    for word in words:
        assert word in done.stderr


def test_help_of_preparing_has_examples(minga: Minga) -> None:
    done = minga("data", "prepare", "--help")
    assert "minga data prepare fish" in done.stdout and "--resize" in done.stdout and "--json" in done.stdout
