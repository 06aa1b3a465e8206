"""`minga profile`, `minga simulate` and `minga plan`, as people and machines use them."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.progress import Progress

from helpers.made_profiles import profile_of
from minga.cli.simulate import parse_change, profile_for
from minga.comm.simulated import ScheduledChange
from minga.errors import ConfigError
from minga.report.dataset.reading import read_run
from minga.report.follow import Follower
from minga.runs.workload import load_workload
from minga.simulate.profile import Profile, load_profile, save_profile
from minga.simulate.profiling import USUAL_CODECS

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
    assert result["simulated"] is True
    shown = minga("report", result["run"], "--out", str(Path(result["run"]) / "report"), "--json")
    assert shown.returncode == 0, shown.stderr
    assert read_run(Path(result["run"])).simulated


def test_a_clusters_file_says_what_the_machines_are_like(minga: Minga, profile: Path, tmp_path: Path) -> None:
    file = tmp_path / "cluster.toml"
    file.write_text("nodes = 3\nspeeds = [1, 1, 0.25]\ndelays = [[0, 0.01, 0.01], [0.01, 0, 0.01], [0.01, 0.01, 0]]\n")

    def seconds(*more: str) -> float:
        arguments = ("simulate", "digits", "-s", "ring", "--steps", "5", "--even", "--profile", str(profile), "--json")
        done = minga(*arguments, *more)
        assert done.returncode == 0, done.stderr
        return float(json.loads(done.stdout)["seconds"])

    assert seconds("--cluster", str(file)) > 2 * seconds("--cluster", str(file), "--nodes", "2"), "the third is slow"
    for wrong, told in ((("--bandwidth", "1mbit"), "leave --bandwidth out"), (("--nodes", "4"), "has 3 nodes, fewer")):
        done = minga("simulate", "digits", "--cluster", str(file), "--profile", str(profile), *wrong)
        assert done.returncode == 2 and told in " ".join(done.stderr.split())


def test_a_clusters_watts_are_what_its_machines_take(minga: Minga, profile: Path, tmp_path: Path) -> None:
    file = tmp_path / "cluster.toml"
    file.write_text("nodes = 1\nidle_watts = 700\ncore_watts = 300\n")
    arguments = ("simulate", "digits", "-s", "single", "--steps", "3", "--sizes", "--profile", str(profile), "--json")
    result = json.loads(minga(*arguments, "--cluster", str(file)).stdout)
    assert result["energy"]["joules"] == pytest.approx(1000 * result["seconds"], rel=0.01)


def test_what_happens_on_the_way_changes_the_run(minga: Minga, profile: Path) -> None:
    arguments = ("simulate", "digits", "-n", "2", "-s", "ring", "--sizes", "--steps", "4", "--bandwidth", "1gbit")

    def seconds(*more: str) -> float:
        done = minga(*arguments, "--profile", str(profile), "--json", *more)
        assert done.returncode == 0, done.stderr
        return float(json.loads(done.stdout)["seconds"])

    even, varied = seconds("--even"), seconds()
    assert varied != even
    assert seconds("--even") == even
    assert seconds("--even", "--change", "10ms:h2:speed=0.25") > 3 * even
    assert seconds("--even", "--change", "10ms:bandwidth=1mbit") > 2 * even
    assert seconds("--even", "--change", "9h:bandwidth=1mbit") == pytest.approx(even)
    lost = minga(*arguments, "--profile", str(profile), "--change", "10ms:h2:lost")
    assert lost.returncode == 1 and "rank 1 is gone (its host was lost at 0.01 s)" in " ".join(lost.stderr.split())


def test_a_plan_tells_people_what_is_in_it(
    minga: Minga, profile: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """How sure it is, that one node is best, in which order machines should join, and that nothing is quick enough."""
    monkeypatch.setenv("COLUMNS", "200")
    file = tmp_path / "cluster.toml"
    file.write_text("nodes = 2\nspeeds = [0.5, 1]\nprice_per_hour = 2\n")
    done = minga("plan", "digits", "--cluster", str(file), "--profile", str(profile), "--minimise", "bytes")
    assert done.returncode == 0, done.stderr
    told = " ".join(done.stdout.split())
    for words in ("One node is best.", "ranks in this order: h2;", "between", "energy", "cost", "nothing to exchange"):
        assert words in told
    assert re.search(r"1 min \d+ s to 1 min", told), "from when to when it may be done"
    assert told.endswith("run it: minga train digits --nodes 1 --strategy single --batch 16")
    late = minga("plan", "digits", "-n", "2", "--profile", str(profile), "--within", "1ms", "--epochs", "3")
    assert "nothing takes less than" in late.stdout and late.stdout.rstrip().endswith("--epochs 3")
    result = json.loads(
        minga("plan", "digits", "--cluster", str(file), "--profile", str(profile), "--within", "1ms", "--json").stdout
    )
    assert result["fits"] is False
    for each in result["candidates"]:
        for name in ("step_seconds", "waiting", "seconds", "bytes", "joules", "cost"):
            low, high = each[f"{name}_between"]
            assert low <= each[name] * (1 + 1e-9) and each[name] <= high * (1 + 1e-9)
        assert each["cost"] > 0 and each["joules"] > 0


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("nodes = 2\n[network]\nhosts.h5.bandwidth = '5mbit'\n", "line 2: network.hosts.h5: there is no such host"),
        ("nodes = 2\nbandwith = '1mbit'\n", "line 2: bandwith: unknown key"),
        ("nodes = 2\n[network]\nbandwidth = '-5mbit'\n", "line 3: network.bandwidth: should be"),
        ("nodes = 2\nprice_per_hour = -1\n", "line 2: price_per_hour: should be 0 or more"),
        ("nodes = 2\n[carrier]\nsend_seconds = -1\n", "line 3: carrier.send_seconds: should be seconds"),
    ],
)
def test_a_clusters_file_that_was_edited_badly_is_told(
    minga: Minga, profile: Path, tmp_path: Path, text: str, told: str
) -> None:
    (tmp_path / "cluster.toml").write_text(text)
    done = minga("plan", "digits", "--cluster", str(tmp_path / "cluster.toml"), "--profile", str(profile))
    assert done.returncode == 2 and told in " ".join(done.stderr.split())


def test_messages_cost_something_also_without_a_network(minga: Minga, profile: Path) -> None:
    done = minga("simulate", "digits", "-n", "2", "-s", "ring", "--steps", "5", "--profile", str(profile), "--json")
    assert done.returncode == 0, done.stderr
    assert all(rank["wait_seconds"] > 0 for rank in json.loads(done.stdout)["ranks"])


def test_a_profile_is_measured_anew_for_another_file_and_for_one_that_has_changed(
    profile: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured: list[str] = []

    def measure(workload: str, **_: object) -> Profile:
        measured.append(workload)
        return load_profile(profile)

    monkeypatch.setattr("minga.cli.profile.measured_profile", measure)
    files = [tmp_path / folder / "mine.py" for folder in ("one", "two")]
    for file in files:
        file.parent.mkdir()
        file.write_text("")
        for _ in range(2):
            profile_for(f"{file}:workload", None, None, tmp_path / "runs")
    assert measured == [f"{file}:workload" for file in files]
    later = time.time() + 10
    os.utime(files[0], (later, later))
    profile_for(f"{files[0]}:workload", None, None, tmp_path / "runs")
    assert len(measured) == 3


@pytest.mark.slow
def test_what_was_probed_can_be_planned_for(minga: Minga, profile: Path, tmp_path: Path) -> None:
    cluster = tmp_path / "cluster.toml"
    done = minga("probe", "--nodes", "3", "--out", str(cluster))
    assert done.returncode == 0, done.stderr
    assert "to h3" in done.stdout and "ns from a node" in done.stdout
    found = minga("plan", "digits", "--cluster", str(cluster), "--profile", str(profile), "--json")
    assert found.returncode == 0, found.stderr
    result = json.loads(found.stdout)
    assert result["left_out"] == {} and len(result["candidates"]) > 100


def test_a_thousand_nodes_by_sizes(minga: Minga, profile: Path) -> None:
    arguments = ("digits", "-n", "1000", "-s", "ring", "--steps", "1", "--batch", "1", "--bandwidth", "1gbit")
    done = minga("simulate", *arguments, "--sizes", "--profile", str(profile), "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["nodes"] == 1000


def test_hundreds_of_nodes_for_people(minga: Minga, profile: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not a row for each of them, and not a look at all of them at each of their steps."""
    looks = 0
    read = Follower.read

    def counted(follower: Follower) -> None:
        nonlocal looks
        looks += 1
        read(follower)

    monkeypatch.setattr(Follower, "read", counted)
    arguments = ("digits", "-n", "200", "-s", "ring", "--steps", "3", "--batch", "1", "--bandwidth", "1gbit")
    done = minga("simulate", *arguments, "--sizes", "--profile", str(profile))
    assert done.returncode == 0, done.stderr
    assert "160 more" in done.stdout and len(done.stdout.splitlines()) < 60
    assert 0 < looks < 200


def test_a_plan_has_an_order_reasons_and_a_command(
    minga: Minga, profile: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[tuple[float, float]] = []
    update = Progress.update

    def noted(bar: Progress, task: Any, **values: Any) -> None:
        shown.append((values["completed"], values["total"]))
        update(bar, task, **values)

    monkeypatch.setattr(Progress, "update", noted)
    done = minga("plan", "digits", "-n", "2", "--bandwidth", "10mbit", "--profile", str(profile))
    assert done.returncode == 0, done.stderr
    assert "run it: minga train digits --nodes 2 --strategy" in done.stdout
    assert shown == [(number, shown[0][1]) for number in range(len(shown))] and len(shown) > 50, "a bar that goes on"
    result = json.loads(minga("plan", "digits", "-n", "2", "--profile", str(profile), "--json").stdout)
    assert result["candidates"][0]["seconds"] <= result["candidates"][-1]["seconds"]
    assert all(each["why"] for each in result["candidates"])


@pytest.mark.slow
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
        (("plan", "digits", "-n", "2", "--within", "soon"), "such as 5ms or 10min"),
        (("plan", "digits", "-n", "2", "--within", "-3s"), "should be above 0"),
        (("plan", "digits", "-n", "2", "--minimise", "cost"), "write price_per_hour in the cluster's file"),
        (("plan", "digits", "-n", "2", "--total-batch", "-5"), "should be at least 1"),
        (("plan", "shakespeare", "-n", "2", "--target", "0.5", "--data", "nowhere"), "nowhere"),
        (("simulate", "digits", "-n", "2", "--change", "10s:delay=-5ms", "--profile", "PROFILE"), "delay should be 0"),
        (("simulate", "digits", "-n", "2", "--change", "1s:bandwidth=-1mbit", "--profile", "PROFILE"), "nothing gets"),
        (("profile", "digits", "--out", "nowhere/mine.json"), "there is no directory nowhere"),
        (("probe", "--out", "nowhere/cluster.toml"), "there is no directory nowhere"),
        (("plan", "digits", "-n", "2", "--target", "90"), "above 0 and at most 1"),
        (("plan", "digits", "-n", "2", "--batches", "32,some"), "numbers above 0, as in 32,64,128"),
        (("plan", "digits", "-n", "2", "--batches", "32", "--total-batch", "64"), "leave --batches out"),
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


def test_changes_as_people_write_them() -> None:
    assert parse_change("10s:bandwidth=8mbit", 4) == ScheduledChange(time=10.0, up=1e6, down=1e6)
    assert parse_change("500ms:h2:up=8mbit", 4) == ScheduledChange(time=0.5, host=1, up=1e6)
    assert parse_change("1s:h4:lost", 4) == ScheduledChange(time=1.0, host=3, lost=True)
    for wrong in ("10s", "10s:lost", "10s:h9:lost", "10s:colour=red", "soon:h1:lost", "1s:h1:speed=0"):
        with pytest.raises(ConfigError):
            parse_change(wrong, 4)
