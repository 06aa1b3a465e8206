"""The `minga` command, for tests of the command line."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from minga.cli.main import main


@pytest.fixture(autouse=True)
def in_an_empty_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MINGA_DATA", raising=False)


@dataclass
class Done:
    returncode: int
    stdout: str
    stderr: str


def call(*arguments: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Done:
    """The `minga` command, in this process, since importing torch takes longer than most of these tests."""
    monkeypatch.setattr(sys, "argv", ["minga", *arguments])
    with pytest.raises(SystemExit) as leaving:
        main()
    printed = capsys.readouterr()
    return Done(int(leaving.value.code or 0), printed.out, printed.err)


Minga = Callable[..., Done]


@pytest.fixture(name="minga")
def minga_command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Minga:
    return partial(call, capsys=capsys, monkeypatch=monkeypatch)
