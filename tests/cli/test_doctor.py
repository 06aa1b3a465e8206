"""`minga doctor` as people and programs use it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

import minga
from minga.cli.main import application


def doctor(*options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "minga", "doctor", *options],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.usefixtures("cold_start")
def test_json_is_one_object_with_everything(tmp_path: Path) -> None:
    (tmp_path / "text").mkdir()
    (tmp_path / "text/novel.txt").write_text("Once")
    ended = doctor("--json", MINGA_DATA=str(tmp_path))
    assert ended.stderr == ""
    examination = json.loads(ended.stdout)
    findings = {finding["name"]: finding for finding in examination["findings"]}
    assert len(findings) == len(examination["findings"])
    assert ended.returncode == 0
    assert examination["local_run_works"] is True
    assert {name for name, finding in findings.items() if finding["needed"]} == {"torch", "gloo", "loopback"}
    assert findings["Minga"]["found"] == minga.__version__
    assert findings["torch"]["found"] == str(torch.__version__)
    assert findings["Python"]["found"] in sys.version
    assert findings["threads per rank"]["values"] == {"default": 1}
    assert findings["data sets"]["values"]["found"] == ["text"]
    assert {"cores", "memory", "NCCL", "to others", "network namespaces", "CPU shares", "disk"} <= findings.keys()
    for finding in findings.values():
        assert finding["state"] in examination["counts"]
        assert bool(finding["remedy"]) == (finding["state"] != "ok")


@pytest.mark.parametrize("columns", [60, *(pytest.param(each, marks=pytest.mark.slow) for each in (80, 120))])
def test_the_table_fits_and_loses_nothing(columns: int) -> None:
    ended = doctor(COLUMNS=str(columns), MINGA_DATA="")
    assert ended.returncode == 0
    lines = ended.stdout.splitlines()
    assert max(map(len, lines)) <= columns
    assert "…" not in ended.stdout
    assert "A local run works" in lines[-1]
    words = " ".join(ended.stdout.split())
    for text in ("Energy counters", "shaping: netem", "remedy: export MINGA_DATA=DIR", "ok loopback"):
        assert text in words


def test_a_missing_gloo_is_exit_code_1(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.distributed, "is_gloo_available", lambda: False)
    told = CliRunner().invoke(application, ["doctor", "--json"])
    assert told.exit_code == 1
    examination = json.loads(told.stdout)
    assert examination["local_run_works"] is False
    (gloo,) = [finding for finding in examination["findings"] if finding["name"] == "gloo"]
    assert gloo["state"] == "missing"
    assert "pip install" in gloo["remedy"]
    shown = CliRunner().invoke(application, ["doctor"])
    assert shown.exit_code == 1
    assert "A local run does not work yet: see gloo." in shown.stdout


def test_a_missing_nccl_is_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.distributed, "is_nccl_available", lambda: False)
    assert CliRunner().invoke(application, ["doctor"]).exit_code == 0
