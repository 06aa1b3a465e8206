"""A study has its directory for itself, and removes nothing that is not its own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from minga.errors import ConfigError, UsageError
from minga.study import Batch, Study
from minga.study.directory import remove_runs_without_a_result, study_directory


def study(name: str = "mine") -> Study:
    return Study(name=name, question="?", experiment={"workload": "digits"}, batch=Batch(policy="total", size=8))


def test_the_resolved_study_is_written_there(tmp_path: Path) -> None:
    with study_directory(tmp_path / "deep" / "mine", study()) as directory:
        assert 'workload = "digits"' in (directory / "study.toml").read_text()
        planned = json.loads((directory / "plan.json").read_text())["runs"]
        assert [(run["cell"], run["repetition"]) for run in planned] == [job.identity for job in study().jobs]


def test_two_at_the_same_time_are_one_too_many(tmp_path: Path) -> None:
    with study_directory(tmp_path / "mine", study()):
        for fresh in (False, True):
            with pytest.raises(UsageError, match=r"another minga bench \(process \d+\) is at work in .*--out"):
                with study_directory(tmp_path / "mine", study(), fresh=fresh):
                    pass
    with study_directory(tmp_path / "mine", study()):
        pass


def test_fresh_moves_the_old_one_aside_and_loses_nothing(tmp_path: Path) -> None:
    for number in range(3):
        with study_directory(tmp_path / "mine", study(), fresh=True) as directory:
            assert not (directory / "results.jsonl").exists()
            (directory / "results.jsonl").write_text(str(number))
    kept = [(path / "results.jsonl").read_text() for path in tmp_path.glob("mine*")]
    assert sorted(kept) == ["0", "1", "2"]


def test_a_directory_with_other_things_in_it_is_refused(tmp_path: Path) -> None:
    precious = tmp_path / "runs" / "20240101-000000-digits-ring-2"
    precious.mkdir(parents=True)
    (tmp_path / "study.toml").write_text(study().to_toml())
    for fresh in (False, True):
        with pytest.raises(ConfigError, match="is not empty and no study's directory"):
            with study_directory(tmp_path, study(), fresh=fresh):
                pass
    assert precious.is_dir()


def test_another_study_is_not_mixed_in(tmp_path: Path) -> None:
    with study_directory(tmp_path / "mine", study()):
        pass
    with pytest.raises(ConfigError, match="has the study 'mine', not 'yours'"):
        with study_directory(tmp_path / "mine", study("yours")):
            pass


def test_only_runs_without_a_result_are_removed(tmp_path: Path) -> None:
    names = ["20240101-000000-digits-ring-2", "20240101-000001-digits-ring-2", "notes"]
    for name in names:
        (tmp_path / name / "events").mkdir(parents=True)
    assert remove_runs_without_a_result(tmp_path, {names[0]}) == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == [names[0], "notes"]
