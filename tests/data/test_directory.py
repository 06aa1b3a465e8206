"""Where data sets are looked for, and what is said when they are not there."""

from __future__ import annotations

from pathlib import Path

import pytest

from minga.data.directory import dataset_directory
from minga.errors import DataError

NEEDS = ["pictures", "labels"]


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MINGA_DATA", raising=False)


def put(directory: Path, *files: str) -> Path:
    """A data directory with a data set `flowers` of these files."""
    (directory / "flowers").mkdir(parents=True)
    for file in files:
        (directory / "flowers" / file).touch()
    return directory


@pytest.mark.parametrize("files", [("pictures", "labels"), ("pictures.gz", "labels.gz"), ("pictures", "labels.gz")])
def test_a_data_set_is_complete_with_plain_or_compressed_files(tmp_path: Path, files: tuple[str, ...]) -> None:
    put(tmp_path, *files)
    assert dataset_directory("flowers", tmp_path, needs=NEEDS) == tmp_path / "flowers"


def test_the_environment_names_the_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINGA_DATA", str(put(tmp_path, *NEEDS)))
    assert dataset_directory("flowers", None, needs=NEEDS) == tmp_path / "flowers"


def test_what_is_given_goes_before_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINGA_DATA", str(put(tmp_path / "environment", *NEEDS)))
    given = put(tmp_path / "given", *NEEDS)
    assert dataset_directory("flowers", given, needs=NEEDS) == given / "flowers"


@pytest.mark.parametrize("value", [None, ""])
def test_without_a_directory_the_error_says_what_to_put_where(
    monkeypatch: pytest.MonkeyPatch, value: str | None
) -> None:
    if value is not None:
        monkeypatch.setenv("MINGA_DATA", value)
    with pytest.raises(DataError) as caught:
        dataset_directory("flowers", None, needs=NEEDS)
    message = str(caught.value)
    assert "(pictures, labels) into DIR/flowers/" in message
    assert "--data DIR" in message and "MINGA_DATA=DIR" in message
    assert "minga train digits" in message


def test_a_directory_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=f"{tmp_path / 'absent'} does not exist; give another with --data DIR"):
        dataset_directory("flowers", tmp_path / "absent", needs=NEEDS)


def test_only_the_files_that_are_missing_are_listed(tmp_path: Path) -> None:
    put(tmp_path, "labels.gz")
    with pytest.raises(DataError, match=rf"{tmp_path / 'flowers'} lacks pictures \(plain or .gz\)\. Put .* --data DIR"):
        dataset_directory("flowers", tmp_path, needs=NEEDS)


def test_a_data_set_without_its_folder_lacks_all_files(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="lacks pictures, labels "):
        dataset_directory("flowers", tmp_path, needs=NEEDS)


def test_a_folder_is_no_file_of_a_data_set(tmp_path: Path) -> None:
    put(tmp_path, "labels")
    (tmp_path / "flowers" / "pictures").mkdir()
    with pytest.raises(DataError, match="lacks pictures "):
        dataset_directory("flowers", tmp_path, needs=NEEDS)
