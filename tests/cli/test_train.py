"""The command line as people and machines use it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Minga = Callable[..., Any]


def test_json_has_what_machines_need(minga: Minga, tmp_path: Path) -> None:
    done = minga("train", "digits", "--nodes", "2", "--strategy", "ring", "--epochs", "1", "--json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert (result["strategy"], result["nodes"], result["steps"]) == ("ring", 2, 45)
    assert Path(result["run"]).is_dir()
    for name in ("accuracy", "loss", "seconds", "samples_per_second", "bytes_sent"):
        assert result[name] > 0
    assert [rank["rank"] for rank in result["ranks"]] == [0, 1]
    for rank in result["ranks"]:
        assert rank["work_seconds"] > 0
        assert rank["wait_seconds"] > 0


def test_a_toml_file_is_the_same_and_options_change_it(minga: Minga, tmp_path: Path) -> None:
    file = tmp_path / "experiment.toml"
    file.write_text(
        'workload = "digits"\n[strategy]\nname = "ps"\nmode = "ssp"\nstaleness = 1\n[training]\nepochs = 9\n'
    )
    arguments = ("train", str(file), "--nodes", "2", "--steps", "5", "--set", "training.batch=8", "--json")
    done = minga(*arguments)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert (result["strategy"], result["steps"], result["batch"]) == ("ps:mode=ssp,staleness=1", 5, 8)


@pytest.mark.slow
def test_a_codec_halves_the_bytes(minga: Minga, tmp_path: Path) -> None:
    def sent(*codec: str) -> int:
        done = minga("train", "digits", "-n", "2", "-s", "ring", "--steps", "4", "--json", *codec)
        assert done.returncode == 0, done.stderr
        return int(json.loads(done.stdout)["bytes_sent"])

    assert sent() == 2 * sent("--codec", "half")


def test_people_get_words_and_a_table(minga: Minga, tmp_path: Path) -> None:
    done = minga("train", "digits", "--nodes", "2", "--epochs", "1")
    assert done.returncode == 0
    for word in ("accuracy", "samples/s", "own work", "waiting", "everything is in"):
        assert word in done.stdout
    assert "loss" in done.stderr  # the course of the run


USAGE_ERRORS = {
    "unknown strategy": (
        ["train", "digits", "--strategy", "rign"],
        ["unknown strategy 'rign'", "Did you mean 'ring'?", "file.py:Class"],
    ),
    "unknown field": (
        ["train", "digits", "-n", "2", "-s", "ps:mod=sync"],
        ["unknown key 'mod'", "Did you mean 'mode'?"],
    ),
    "no nodes": (["train", "digits", "--nodes", "0"], ["nodes: should be at least 1, not 0"]),
    "unknown workload": (["train", "digit"], ["unknown workload 'digit'", "Did you mean 'digits'?"]),
    "no data directory": (["train", "mnist"], ["mnist", "--data DIR", "MINGA_DATA", "minga train digits"]),
    "wrong data directory": (["train", "mnist", "--data", "/nowhere"], ["/nowhere does not exist", "--data DIR"]),
    "missing file": (["train", "mine.py:workload"], ["there is no file 'mine.py'"]),
    "missing TOML": (["train", "mine.toml"], ["can't read mine.toml"]),
    "single on two nodes": (["train", "digits", "-n", "2", "-s", "single"], ["'single' is one node alone, not 2"]),
    "nothing to start from": (
        ["train", "digits", "--start-from", "nowhere"],
        ["there is no nowhere", "a run's directory or a safetensors file"],
    ),
    "resume and start from": (
        ["train", "--resume", "runs/x", "--start-from", "runs/y"],
        ["goes on with that run's own weights", "leave --start-from runs/y out"],
    ),
    "bad --set": (["train", "digits", "--set", "training.seed"], ["path.to.field=value"]),
    "unknown --set": (["train", "digits", "--set", "training.sed=1"], ["unknown key 'sed'", "Did you mean 'seed'?"]),
    "epochs and steps": (["train", "digits", "--epochs", "2", "--steps", "3"], ["epochs (2) or steps (3), not both"]),
    "unknown codec": (
        ["train", "digits", "-n", "2", "--codec", "haf"],
        ["unknown codec 'haf'", "Did you mean 'half'?"],
    ),
    "an empty name in --set": (["train", "digits", "--set", "=1"], ["--set '=1'", "path.to.field=value"]),
    "more nodes than there is memory for": (
        ["train", "digits", "--nodes", "1000000"],
        ["1,000,000 processes need at least", "enough for", "minga simulate"],
    ),
    "an infinite rate": (
        ["train", "digits", "--set", "training.learning_rate=inf"],
        ["learning_rate: should be more than 0 and finite, not inf"],
    ),
    "data that a workload without any would ignore": (
        ["train", "digits", "--data", "nothere"],
        ["the data directory nothere does not exist", "leave it out"],
    ),
    "a file that is no Python": (["train", "broken.py"], ["broken.py, line 2: "]),
    "a name that is not in the file": (
        ["train", "other.py:workload"],
        ["unknown name in other.py: 'workload'", "known: make_workload"],
    ),
    "a time that lies back": (
        ["join", "127.0.0.1:9", "--token", "0" * 64, "--wait", "-1s"],
        ["--wait should be a time of 0s or more", "not -1s"],
    ),
    "bad batch": (["train", "digits", "--batch", "0"], ["batch: should be at least 1"]),
}


@pytest.mark.parametrize("name", USAGE_ERRORS)
def test_errors_say_what_was_given_what_is_possible_and_what_to_do(minga: Minga, tmp_path: Path, name: str) -> None:
    (tmp_path / "broken.py").write_text("x = 1\ndef workload(:\n")
    (tmp_path / "other.py").write_text("def make_workload():\n    return None\n")
    arguments, words = USAGE_ERRORS[name]
    done = minga(*arguments)
    assert done.returncode == 2
    assert not (tmp_path / "runs").exists()
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    for word in words:
        assert word in done.stderr


def test_too_few_open_files_are_told_at_once(tmp_path: Path) -> None:
    program = """
import resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (60, 60))
sys.argv = ["minga", "train", "digits", "--nodes", "2"]
from minga.cli.main import main
main()
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2, done.stderr
    assert "2 ranks need 68 open files in a process, and 60 are allowed here" in done.stderr
    assert "ulimit -n 68" in done.stderr and "Traceback" not in done.stderr
    assert not (tmp_path / "runs").exists()


def test_a_bad_key_in_a_file_is_an_error_with_its_place(minga: Minga, tmp_path: Path) -> None:
    file = tmp_path / "experiment.toml"
    file.write_text('workload = "digits"\n\n[cluster]\nnoddes = 2\n')
    done = minga("train", str(file))
    assert done.returncode == 2
    assert "experiment.toml, line 4: cluster.noddes: unknown key 'noddes'" in done.stderr
    assert "Did you mean 'nodes'?" in done.stderr


def test_strategies_are_listed_with_their_fields(minga: Minga, tmp_path: Path) -> None:
    done = minga("strategies", "--json")
    listed = {entry["name"]: entry for entry in json.loads(done.stdout)["strategies"]}
    names = {"single", "native", "ring", "tree", "halving_doubling", "mesh", "two_level", "ps", "switch"}
    assert names <= set(listed)
    for entry in listed.values():
        assert entry["summary"]
        assert all(field["about"] for field in entry["fields"])
    assert {"mode", "servers", "staleness"} <= {field["name"] for field in listed["ps"]["fields"]}
    assert "ssp" in minga("strategies").stdout


def test_strategies_are_compared_in_one_table(minga: Minga, tmp_path: Path) -> None:
    arguments = ("compare", "digits", "-n", "2", "-s", "single", "-s", "ring", "--steps", "10", "--json")
    done = minga(*arguments)
    assert done.returncode == 0, done.stderr
    assert [(run["strategy"], run["nodes"]) for run in json.loads(done.stdout)] == [("single", 1), ("ring", 2)]
