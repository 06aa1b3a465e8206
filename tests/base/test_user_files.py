"""Objects from users' own files, and what is said when there is none."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from minga.base.user_files import check_file, load_from_file
from minga.errors import ConfigError

Write = Callable[[str, str], Path]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Write a user's file, relative to an empty directory that is also the current one."""
    monkeypatch.setattr(sys, "path", sys.path.copy())
    monkeypatch.chdir(tmp_path)

    def write_file(name: str, text: str) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    return write_file


def test_an_object_is_found_by_file_and_name(write: Write) -> None:
    path = write("mine.py", "answer = 42")
    assert load_from_file(f"{path}:answer") == 42


def test_a_file_is_looked_for_in_the_current_directory(write: Write) -> None:
    write("inner/mine.py", "answer = 42")
    assert load_from_file("inner/mine.py:answer") == 42


def test_a_file_is_looked_for_in_the_home_directory(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write("home/mine.py", "answer = 42")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert load_from_file("~/mine.py:answer") == 42


def test_a_file_runs_once_however_it_is_called(write: Write) -> None:
    path = write("mine.py", "first, second = object(), object()")
    assert load_from_file("mine.py:first") is load_from_file(f"{path}:first")
    assert load_from_file("mine.py:first") is not load_from_file("mine.py:second")


def test_files_of_the_same_name_in_two_folders_are_two_modules(write: Write) -> None:
    write("one/mine.py", "class Mine: answer = 1")
    write("two/mine.py", "class Mine: answer = 2")
    one, two = (load_from_file(f"{folder}/mine.py:Mine") for folder in ("one", "two"))
    assert (one.answer, two.answer) == (1, 2)
    assert one.__module__ != two.__module__


def test_a_file_does_not_hide_a_module_of_the_same_name(write: Write) -> None:
    write("json.py", "dumps = 'mine'")
    assert load_from_file("json.py:dumps") == "mine"
    import json

    assert json.dumps([1]) == "[1]"


def test_a_file_can_import_its_neighbours(write: Write) -> None:
    write("inner/neighbour_of_mine.py", "answer = 42")
    write("inner/mine.py", "from neighbour_of_mine import answer")
    assert load_from_file("inner/mine.py:answer") == 42


def test_classes_of_a_file_know_their_module(write: Write) -> None:
    write("mine.py", "class Mine: pass")
    cls = load_from_file("mine.py:Mine")
    assert sys.modules[cls.__module__].Mine is cls


def test_a_missing_file_is_named_with_the_place_where_it_was_looked_for(write: Write, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load_from_file("absent.py:answer")
    assert str(caught.value) == (
        f"there is no file 'absent.py' (looked for {tmp_path / 'absent.py'}); give file.py:name"
    )


def test_a_folder_is_no_file(write: Write, tmp_path: Path) -> None:
    (tmp_path / "folder.py").mkdir()
    with pytest.raises(ConfigError, match=r"there is no file 'folder.py'"):
        check_file("folder.py:answer")


def test_checking_a_file_does_not_run_it(write: Write) -> None:
    path = write("mine.py", "raise SystemExit")
    assert check_file("mine.py:answer") == path.resolve()


@pytest.mark.parametrize("reference", ["mine.py", "mine.py:", "mine.py:not a name", "mine.py:a:b"])
def test_a_reference_without_a_name_is_refused_before_the_file_runs(write: Write, reference: str) -> None:
    write("mine.py", "raise SystemExit")
    with pytest.raises(ConfigError, match=r"should be file.py:name, with the name of an object in the file"):
        load_from_file(reference)


def test_an_unknown_name_is_answered_with_the_files_public_names(write: Write) -> None:
    write("mine.py", "workload = 1\n_hidden = 2\nother = 3")
    with pytest.raises(ConfigError) as caught:
        load_from_file("mine.py:workloda")
    assert str(caught.value) == (
        "unknown name in mine.py: 'workloda'; known: other, workload. Did you mean 'workload'?"
    )


def test_a_syntax_error_is_named_with_its_line(write: Write) -> None:
    write("mine.py", "answer = 42\n\nanswer = = 43\n")
    with pytest.raises(ConfigError, match=r"^mine.py, line 3: invalid syntax"):
        load_from_file("mine.py:answer")


def test_a_module_that_is_missing_is_named(write: Write) -> None:
    write("mine.py", "import absent_module_of_mine")
    with pytest.raises(ConfigError, match=r"^mine.py can't be imported: No module named 'absent_module_of_mine'$"):
        load_from_file("mine.py:answer")


@pytest.mark.parametrize("mistake", ["answer = = 42", "import absent_module_of_mine"])
def test_a_file_can_be_loaded_after_its_mistake_is_mended(write: Write, mistake: str) -> None:
    write("mine.py", mistake)
    with pytest.raises(ConfigError):
        load_from_file("mine.py:answer")
    write("mine.py", "answer = 42")
    assert load_from_file("mine.py:answer") == 42


def test_an_error_of_the_users_program_stays_what_it_is(write: Write) -> None:
    write("mine.py", "answer = 1 / 0")
    with pytest.raises(ZeroDivisionError):
        load_from_file("mine.py:answer")
