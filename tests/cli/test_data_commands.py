"""`minga data list`, `fetch` and `verify`, as people and machines use them."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

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


def test_fetched_verified_listed_and_trained(minga: Minga, text: Path) -> None:
    done = minga("data", "fetch", "tiny-shakespeare", "--from", str(text), "--data", "data")
    assert done.returncode == 0, done.stderr
    for word in ("free to all", "fetched", "tinyshakespeare.txt.gz", "minga train shakespeare --data data"):
        assert word in done.stdout
    assert minga("data", "verify", "tiny-shakespeare", "--data", "data").returncode == 0
    assert json.loads(minga("data", "list", "--json", "--data", "data").stdout)["datasets"][0]["here"] is True
    trained = minga("train", "shakespeare", "--data", "data", "--steps", "2", "--json", "--strategy", "single")
    assert trained.returncode == 0, trained.stderr


def test_damage_is_exit_code_1(minga: Minga, text: Path, tmp_path: Path) -> None:
    minga("data", "fetch", "tiny-shakespeare", "--from", str(text), "--data", "data")
    (tmp_path / "data" / "text" / "tinyshakespeare.txt.gz").write_bytes(gzip.compress(b"To be, or what?"))
    done = minga("data", "verify", "tiny-shakespeare", "--data", "data")
    assert done.returncode == 1
    assert "damaged" in done.stdout and "minga data fetch tiny-shakespeare" in done.stdout
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
