"""`minga report` as people and machines use it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from helpers.made_runs import make_run, plausible_study
from minga.cli.main import main


def call(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *arguments: str) -> tuple[int, str, str]:
    monkeypatch.setattr(sys, "argv", ["minga", "report", *arguments])
    with pytest.raises(SystemExit) as leaving:
        main()
    printed = capsys.readouterr()
    return int(leaving.value.code or 0), printed.out, printed.err


def test_one_run_goes_into_its_own_directory(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make_run(tmp_path)
    code, out, _ = call(capsys, monkeypatch, str(run))
    assert code == 0
    assert str(run / "report" / "report.html") in out.replace("\n", "")
    assert (run / "report" / "report.html").is_file()


def test_several_runs_go_beside_them_and_are_found_again_without_harm(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for nodes in (1, 2):
        make_run(tmp_path, nodes=nodes, samples_every=None)
    for _ in range(2):  # the second time the report of the first is among runs/*
        code, out, _ = call(capsys, monkeypatch, *map(str, sorted(tmp_path.iterdir())), "--json")
        assert code == 0
        assert len(json.loads(out)["groups"]) == 2
    assert Path(json.loads(out)["html"]).parent.parent == tmp_path


def test_json_has_the_numbers_and_the_words(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    study = plausible_study(tmp_path, ["ring"], ["10mbit"], 1)
    code, out, _ = call(capsys, monkeypatch, str(study), "--json", "--target", "0.99")
    told = json.loads(out)
    assert code == 0
    assert told["html"] == str(study / "report.html")
    assert all(Path(path).is_file() for path in [told["markdown"], *told["tables"], *told["figures"]])
    asked = {"metric": "accuracy", "value": 0.99, "reason": "as asked for", "lower_is_better": False}
    assert told["target"] == asked
    assert told["groups"][0]["seconds_to_target"]["median"] is None
    assert all(group["energy"]["estimated"] is True for group in told["groups"])
    assert told["groups"][2]["straggler"]["name"] == "h2"
    assert any("slower than one" in sentence for sentence in told["summary"])
    assert told["failures"][0]["reason"] == "rank 1 failed: out of memory"


def test_what_can_not_work_is_said_without_a_traceback(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code, out, err = call(capsys, monkeypatch, str(tmp_path / "nothing"))
    assert code == 2 and not out
    assert "there is no" in err and "Traceback" not in err
