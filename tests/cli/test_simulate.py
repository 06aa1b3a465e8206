"""`minga profile`, `minga simulate` and `minga plan`, as people and machines use them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from minga.cli.simulate import parse_change
from minga.comm.simulated import Change
from minga.errors import ConfigError
from minga.simulate.profile import load_profile, save_profile
from minga.simulate.profiling import USUAL_CODECS
from minga.testing.profiles import profile_of
from minga.workload import load_workload

Minga = Callable[..., Any]


@pytest.fixture
def profile(tmp_path: Path) -> Path:
    path = tmp_path / "digits.profile.json"
    save_profile(profile_of(load_workload("digits", None), "digits", codecs=USUAL_CODECS), path)
    return path


def test_a_profile_is_measured_shown_and_kept(minga: Minga, tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    done = minga("profile", "digits", "--batch", "16", "--out", str(path))
    assert done.returncode == 0, done.stderr
    for words in ("forward", "samples/s", "int8", "GB/s", "mine.json"):
        assert words in done.stdout
    assert load_profile(path).workload == "digits"


def test_a_simulation_tells_what_a_run_would(minga: Minga, profile: Path) -> None:
    arguments = ("digits", "-n", "4", "-s", "ring", "--epochs", "1", "--bandwidth", "10mbit", "--delay", "5ms")
    done = minga("simulate", *arguments, "--profile", str(profile), "--json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert (result["strategy"], result["nodes"], result["steps"]) == ("ring", 4, 23)
    assert result["accuracy"] > 0 and result["seconds"] > 0
    shown = minga("report", result["run"], "--out", str(Path(result["run"]) / "report"))
    assert shown.returncode == 0, shown.stderr


def test_a_thousand_nodes_by_sizes(minga: Minga, profile: Path) -> None:
    arguments = ("digits", "-n", "1000", "-s", "ring", "--steps", "1", "--batch", "1", "--bandwidth", "1gbit")
    done = minga("simulate", *arguments, "--sizes", "--profile", str(profile), "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["nodes"] == 1000


def test_a_plan_has_an_order_reasons_and_a_command(minga: Minga, profile: Path) -> None:
    done = minga("plan", "digits", "-n", "2", "--bandwidth", "10mbit", "--profile", str(profile))
    assert done.returncode == 0, done.stderr
    assert "run it: minga train digits --nodes 2 --strategy" in done.stdout
    result = json.loads(minga("plan", "digits", "-n", "2", "--profile", str(profile), "--json").stdout)
    assert result["candidates"][0]["seconds"] <= result["candidates"][-1]["seconds"]
    assert all(each["why"] for each in result["candidates"])


def test_a_plan_for_an_accuracy_trains_the_best_ones_in_virtual_time(minga: Minga, profile: Path) -> None:
    arguments = ("plan", "digits", "-n", "2", "--bandwidth", "10mbit", "--epochs", "3", "--pilots", "1", "--json")
    result = json.loads(minga(*arguments, "--target", "0.6", "--profile", str(profile)).stdout)
    assert {pilot["nodes"] for pilot in result["pilots"]} == {1, 2}
    first, *_ = result["pilots"]
    assert first["best"] >= 0.6 and first["seconds"] > 0 and 1 <= first["epochs"] <= 3
    assert first["strategy"] in result["command"]
    done = minga(*arguments[:-1], "--target", "0.9999", "--profile", str(profile))
    assert "not reached" in done.stdout and "more may (--epochs)" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("plan", "digits"), "say what machines there are"),
        (("plan", "digits", "-n", "2", "--minimise", "tiem"), "Did you mean 'time'"),
        (("plan", "digits", "-n", "2", "--within", "soon"), "write it as 90s, 10min or 2h"),
        (("plan", "digits", "-n", "2", "--target", "90"), "above 0 and at most 1"),
        (("plan", "digits", "--cluster", "nowhere.toml"), "can't read nowhere.toml"),
        (("simulate", "digits", "-n", "2", "--profile", "nowhere.json"), "minga profile WORKLOAD"),
        (("simulate", "digits", "-n", "2", "--change", "10s:h7:lost", "--profile", "PROFILE"), "there are h1 to h2"),
        (("simulate", "mnist", "-n", "2", "--profile", "PROFILE"), "is a profile of digits, not of mnist"),
        (("profile", "digits", "--batch", "0"), "--batch should be at least 1"),
        (("profile", "digit"), "Did you mean 'digits'"),
    ],
)
def test_what_cannot_be_is_told(minga: Minga, profile: Path, arguments: tuple[str, ...], told: str) -> None:
    done = minga(*(str(profile) if each == "PROFILE" else each for each in arguments))
    assert done.returncode == 2
    assert told in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("command", ["profile", "simulate", "plan"])
def test_help_has_an_example(minga: Minga, command: str) -> None:
    assert f"minga {command} digits" in minga(command, "--help").stdout


def test_changes_as_people_write_them() -> None:
    assert parse_change("10s:bandwidth=8mbit", 4) == Change(time=10.0, up=1e6, down=1e6)
    assert parse_change("500ms:h2:up=8mbit", 4) == Change(time=0.5, host=1, up=1e6)
    assert parse_change("1s:h4:lost", 4) == Change(time=1.0, host=3, lost=True)
    for wrong in ("10s", "10s:lost", "10s:h9:lost", "10s:colour=red", "soon:h1:lost", "1s:h1:speed=0"):
        with pytest.raises(ConfigError):
            parse_change(wrong, 4)
