"""What the launcher makes of how processes end."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from minga.errors import RankFailed, RunError
from minga.launch.policy import LEFT_BEHIND, Who
from minga.launch.processes import Job
from minga.launch.supervisor import Supervisor


def end(arguments: Mapping[str, Any]) -> int:
    return int(arguments["code"])


def outcome(codes: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, fewest: int = 1) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent), prepend=os.pathsep)
    names = [f"rank {rank}" for rank in range(len(codes))]
    jobs = [
        Job(name, f"{__name__}:end", {"code": code}, str(tmp_path / f"{name}.log"))
        for name, code in zip(names, codes, strict=True)
    ]
    (tmp_path / "logs").mkdir()
    roles = dict.fromkeys(names, Who.WORKER)
    Supervisor(tmp_path, jobs, roles=roles, workers=names, fewest=fewest).supervise()


@pytest.mark.usefixtures("cold_start")
def test_who_is_left_behind_does_not_fail_a_run_that_others_finish(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcome([0, LEFT_BEHIND, 0], tmp_path, monkeypatch)


def test_who_fails_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RankFailed, match="rank 1 ended with exit code 1"):
        outcome([0, 1, 0], tmp_path, monkeypatch)


def test_a_run_that_leaves_everybody_behind_has_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RunError, match=f"exit code {LEFT_BEHIND}"):
        outcome([LEFT_BEHIND, LEFT_BEHIND], tmp_path, monkeypatch)
