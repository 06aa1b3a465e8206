"""`minga bench` as people and machines use it."""

from __future__ import annotations

import _thread
import json
import socket
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from minga.cli.main import main

STUDY = """
name = "tiny"
question = "Does it run?"
repetitions = 1
[experiment]
workload = "digits"
training.steps = 3
[batch]
policy = "total"
size = 8
"""


class Done(NamedTuple):
    code: int
    out: str
    err: str


Bench = Callable[..., Done]


@pytest.fixture
def bench(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Bench:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MINGA_DATA", raising=False)
    Path("tiny.toml").write_text(STUDY)

    def call(*arguments: str) -> Done:
        monkeypatch.setattr(sys, "argv", ["minga", "bench", *arguments])
        with pytest.raises(SystemExit) as leaving:
            main()
        printed = capsys.readouterr()
        return Done(int(leaving.value.code or 0), printed.out, printed.err)

    return call


def test_a_dry_run_tells_of_pretraining(bench: Bench) -> None:
    Path("tiny.toml").write_text(STUDY + "[pretraining]\ntraining.steps = 50\n")
    assert "pretraining, whose weights all runs begin with: about" in bench("tiny.toml", "--dry-run").out
    told = json.loads(bench("tiny.toml", "--dry-run", "--json").out)
    (only,) = told["runs"]
    assert told["pretraining_estimated_seconds"] > 0
    assert told["estimated_seconds"] == told["pretraining_estimated_seconds"] + only["estimated_seconds"]


def test_shipped_studies_are_listed_with_their_questions(bench: Bench) -> None:
    done = bench("--list")
    assert done.code == 0
    for words in ("quito", "buenos-aires", "cantabria", "Does adding nodes help at home"):
        assert words in done.out
    listed = {each["name"]: each for each in json.loads(bench("--list", "--json").out)["studies"]}
    assert (listed["quito"]["cells"], listed["quito"]["runs"]) == (10, 30)


def test_a_dry_run_shows_cells_order_and_an_estimate_and_runs_nothing(bench: Bench) -> None:
    done = bench("quito", "--quick", "--dry-run")
    assert done.code == 0, done.err
    assert done.out.count("repetition 1") == done.out.count("repetition 2") == 10
    assert "20 of 20 runs to do: about" in done.out
    assert "estimated" in done.out
    whole = json.loads(bench("quito", "--quick", "--dry-run", "--json").out)
    assert len(whole["runs"]) == 20
    assert 60 < whole["estimated_seconds"] < 600
    assert not Path("studies").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["quitto"], ["unknown study 'quitto'", "Did you mean 'quito'?"]),
        (["--quick"], ["name a study", "--list"]),
        (["none.toml"], ["can't read none.toml"]),
        (["wrong.toml"], ["wrong.toml, line 13", "the cell '2 nodes, single' can't work"]),
        (["buenos-aires"], ["mnist", "MINGA_DATA"]),
    ],
)
def test_a_wrong_study_runs_nothing(bench: Bench, arguments: list[str], words: list[str]) -> None:
    Path("wrong.toml").write_text(STUDY + '[grid]\ncluster.nodes = [1, 2]\nstrategy = ["single"]\n')
    done = bench(*arguments)
    assert (done.code, done.out) == (2, "")
    assert "Traceback" not in done.err
    for word in words:
        assert word in done.err
    assert not list(Path.cwd().glob("studies/*/runs"))


def test_a_failed_run_is_told_and_the_same_command_tries_it_again(
    bench: Bench,
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        Path("tiny.toml").write_text(
            STUDY.replace("[batch]", f"cluster = {{ nodes = 2, port = {taken.getsockname()[1]} }}\n[batch]")
        )
        failed = bench("tiny.toml", "--no-report")
    assert failed.code == 1
    assert "failed: 2 nodes, adaptive, repetition 1: can't listen on" in failed.out
    assert "tries the failed ones again" in failed.out
    again = bench("tiny.toml", "--json", "--no-report")
    assert again.code == 0, again.err
    whole = json.loads(again.out)
    assert (whole["study"], whole["done"], whole["failed"], whole["report"]) == ("tiny", 1, [], None)
    assert whole["cells"][0]["seconds"]["median"] > 0
    complete = bench("tiny.toml")
    assert complete.code == 0
    assert "studies/tiny/report.html" in complete.out
    assert "What the figures show" in Path("studies/tiny/report.html").read_text()
    for words in ("Does it run?", "from - to", "accuracy", "speedup", "everything is in"):
        assert words in complete.out
    assert len(Path("studies/tiny/results.jsonl").read_text().splitlines()) == 2


def test_ctrl_c_says_how_to_go_on(bench: Bench) -> None:
    Path("tiny.toml").write_text(STUDY.replace("steps = 3", "steps = 100_000"))

    def press() -> None:
        deadline = time.monotonic() + 60
        while not list(Path("mine").glob("runs/*/logs/rank-0.log")) and time.monotonic() < deadline:
            time.sleep(0.01)
        _thread.interrupt_main()

    somebody = threading.Thread(target=press)
    somebody.start()
    done = bench("tiny.toml", "--out", "mine", "--no-report")
    somebody.join()
    assert done.code == 130
    assert "0 runs are done, 1 are left: the same command goes on" in done.err
    assert list(Path("mine/runs").iterdir()) == []


def test_a_report_that_can_not_be_written_does_not_hide_the_results(bench: Bench) -> None:
    Path("tiny.toml").write_text(STUDY)
    assert bench("tiny.toml", "--no-report").code == 0
    Path("studies/tiny/report.html").mkdir()  # in the way of the file
    done = bench("tiny.toml")
    assert done.code == 0, done.err
    assert "no report" in done.err
    assert "speedup" in done.out
