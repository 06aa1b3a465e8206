"""Folders that appear when they are whole: what may be replaced, what may be removed, what comes back."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest

from minga.data import checksums
from minga.data.formats import origin_of_path
from minga.data.prepared.manifest import PreparedManifest, verify_prepared
from minga.data.preparing.folder import check_free
from minga.data.preparing.prepare import Recipe, prepare
from minga.errors import DataError


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "x.csv"
    path.write_text("a,y\n" + "".join(f"{index},{index}.5\n" for index in range(20)))
    return path


def make(table: Path, out: Path, *, seed: int = 0, replace: bool = False) -> PreparedManifest:
    return prepare(origin_of_path(table), out, Recipe(seed=seed), replace=replace)


def test_only_what_is_our_own_is_removed(table: Path, tmp_path: Path) -> None:
    others = [".venv-3.12", ".venv-abcdefgh", ".minga-preparing-venv-2-abcdefgh", ".minga-preparing-venv-mine"]
    for name in (*others, ".minga-preparing-venv-abcdefgh"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "precious").touch()
    make(table, tmp_path / "venv")
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*others, "venv", "x.csv"])


def test_a_name_is_no_pattern(table: Path, tmp_path: Path) -> None:
    others = [tmp_path / ".set1-abcdefgh", tmp_path / ".minga-preparing-set1-abcdefgh"]
    for path in others:
        path.mkdir()
    make(table, tmp_path / "set[1]")
    make(table, tmp_path / "set.")
    assert all(path.is_dir() for path in others)


@pytest.mark.parametrize("content", ["{}", '{"name": "an extension", "format": 3}', "no json"])
def test_another_programs_manifest_is_no_prepared_set(table: Path, tmp_path: Path, content: str) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "manifest.json").write_text(content)
    with pytest.raises(DataError, match=r"is not replaced, for it may be something else .*; remove it yourself"):
        make(table, tmp_path / "out", replace=True)
    assert (tmp_path / "out" / "manifest.json").read_text() == content


def test_a_set_with_something_else_in_it_is_not_replaced(table: Path, tmp_path: Path) -> None:
    make(table, tmp_path / "out")
    (tmp_path / "out" / "notes.txt").write_text("precious")
    with pytest.raises(DataError, match=r"'notes\.txt' in it is not of the prepared set; move it elsewhere"):
        make(table, tmp_path / "out", replace=True)
    assert (tmp_path / "out" / "notes.txt").read_text() == "precious"


def test_the_only_copy_of_one_who_was_killed_comes_back(table: Path, tmp_path: Path) -> None:
    made = make(table, tmp_path / "out")
    (tmp_path / "out").rename(tmp_path / ".minga-preparing-out-abcdefgh-before")
    with pytest.raises(DataError, match="exists already; give --replace"):
        make(table, tmp_path / "out", seed=1)
    assert PreparedManifest.load(tmp_path / "out") == made
    make(table, tmp_path / "out", seed=1, replace=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "x.csv"]
    assert PreparedManifest.load(tmp_path / "out").recipe["seed"] == 1


def test_what_another_has_moved_away_just_now_stays_there(table: Path, tmp_path: Path) -> None:
    make(table, tmp_path / "out")
    before = (tmp_path / "out").rename(tmp_path / ".minga-preparing-out-abcdefgh-before")
    descriptor = os.open(before, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    check_free(tmp_path / "out", replace=False)
    os.close(descriptor)
    assert before.is_dir() and not (tmp_path / "out").exists()


def test_what_was_there_stays_when_the_new_one_cannot_take_its_place(
    table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    made = make(table, out)
    rename = Path.rename

    def refuse(path: Path, target: Path) -> Path:
        if target == out and not path.name.endswith("-before"):
            raise OSError(5, "Input/output error")
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", refuse)
    with pytest.raises(DataError, match="nothing was changed"):
        make(table, out, seed=1, replace=True)
    assert PreparedManifest.load(out) == made and sorted(path.name for path in tmp_path.iterdir()) == ["out", "x.csv"]


def test_a_shard_that_cannot_be_read_is_a_finding(table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(5, "Input/output error")

    make(table, tmp_path / "out")
    monkeypatch.setattr(checksums, "digest_of", refuse)
    found = {each.name: each.problem for each in verify_prepared(tmp_path / "out") if each.wrong}
    assert found["train-00000.safetensors"] == "it can't be read: Input/output error"
