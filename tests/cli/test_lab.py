"""`minga lab` and runs in a lab, from the command line."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

Minga = Callable[..., Any]

pytestmark = pytest.mark.usefixtures("labs_possible")


@pytest.fixture
def running_lab() -> Iterator[dict[str, Any]]:
    """A lab that another process has made, as `minga lab up` does."""
    command = [sys.executable, "-m", "minga", "lab", "up", "--hosts", "2", "--bandwidth", "10mbit", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 130


def test_measure_tells_asked_and_measured(minga: Minga) -> None:
    done = minga("lab", "measure", "--hosts", "2", "--bandwidth", "20mbit", "--delay", "10ms", "--json")
    measured = json.loads(done.stdout)
    assert measured["bandwidth_asked"] == 20e6
    assert measured["bandwidth_measured"] == pytest.approx(20e6, rel=0.05)
    assert measured["delay_measured"] == pytest.approx(0.01, abs=0.002)
    assert [link["host"] for link in measured["links"]] == ["h1", "h2"]


def test_measure_for_people(minga: Minga) -> None:
    done = minga("lab", "measure", "--hosts", "1", "--bandwidth", "20mbit")
    assert "20.00" in done.stdout
    assert "TCP payload" in done.stdout


def test_a_shell_in_a_new_lab_has_the_hosts_network_and_its_exit_code(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "minga", "lab", "shell", "h2", "--bandwidth", "10mbit", "--"]
    inside = "import os, sys; print(open('/proc/net/dev').read(), os.environ['MINGA_HOST']); sys.exit(7)"
    done = subprocess.run([*command, sys.executable, "-c", inside], capture_output=True, text=True, check=False)
    assert done.returncode == 7
    assert "eth0" in done.stdout
    assert "h2" in done.stdout


def test_a_running_lab_is_listed_entered_and_changed(running_lab: dict[str, Any], minga: Minga) -> None:
    name = running_lab["lab"]
    assert name in [lab["lab"] for lab in json.loads(minga("lab", "list", "--json").stdout)]
    command = [sys.executable, "-m", "minga", "lab", "shell", "h1", "--lab", name, "--", "cat", "/proc/net/dev"]
    assert "eth0" in subprocess.run(command, capture_output=True, text=True, check=True).stdout
    done = minga("lab", "change", "h1", "--lab", name, "--bandwidth", "1mbit", "--json")
    assert json.loads(done.stdout)["changed"], done.stderr
    assert name not in json.loads(minga("lab", "clean", "--json").stdout)["removed"]  # it is in use


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("lab", "measure", "--bandwidth", "fast"), "such as 10mbit"),
        (("lab", "measure", "--delay", "5"), "such as 5ms"),
        (("lab", "shell", "h9", "--bandwidth", "10mbit", "--", "true"), "there are h1, h2"),
        (("lab", "shell", "h1", "--bandwidth", "10mbit", "--", "no-such-command"), "no command 'no-such-command'"),
        (("lab", "shell", "h1", "--lab", "minga-lab-none", "--", "true"), "no lab 'minga-lab-none' is running"),
        (("lab", "shell", "h1", "--cpu", "1,1,1", "--", "true"), "cpu should have one value"),
        (("train", "digits", "--bandwidth", "10"), "such as 10mbit"),
        (("train", "digits", "--nodes", "2", "--bandwidth", "100gbit"), "a lab's links have from 64kbit to 30gbit"),
        (("train", "digits", "--nodes", "2", "--cpu", "1,1,1"), "cluster.cpu: should have 1 or 2 values"),
        (("train", "digits", "--batch", "8", "--total-batch", "8"), "not both"),
    ],
)
def test_mistakes_are_told_without_a_traceback(arguments: tuple[str, ...], message: str, minga: Minga) -> None:
    done = minga(*arguments)
    assert done.returncode == 2
    assert message in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr


def test_a_run_in_a_lab_tells_what_the_network_was_and_is_as_slow_as_it_should(minga: Minga) -> None:
    done = minga("train", "digits", "--nodes", "2", "--bandwidth", "5mbit", "--delay", "5ms", "--steps", "10", "--json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["bandwidth_asked"] == 5e6
    assert result["bandwidth_measured"] == pytest.approx(5e6, rel=0.05)
    assert result["delay_measured"] == pytest.approx(0.005, abs=0.002)
    # Each rank sends its bytes one after the other; the last ones are under way when a step ends.
    assert result["seconds"] > 0.9 * result["ranks"][0]["bytes_sent"] * 8 / 5e6
    assert [rank["host"] for rank in result["ranks"]] == ["h1", "h2"]


def test_servers_are_hosts_of_their_own(minga: Minga) -> None:
    done = minga(
        "train",
        "digits",
        "--nodes",
        "2",
        "--strategy",
        "ps:mode=async",
        "--bandwidth",
        "50mbit",
        "--steps",
        "5",
        "--json",
    )
    assert done.returncode == 0, done.stderr
    assert [rank["host"] for rank in json.loads(done.stdout)["ranks"]] == ["h1", "h2", "h3"]


@pytest.mark.parametrize(
    "strategy",
    [pytest.param("native", marks=pytest.mark.slow), "ring", pytest.param("ps:mode=sync", marks=pytest.mark.slow)],
)
def test_bytes_of_the_transport_are_those_of_the_interface(strategy: str, minga: Minga) -> None:
    done = minga(
        "train", "digits", "--nodes", "2", "--strategy", strategy, "--bandwidth", "50mbit", "--epochs", "2", "--json"
    )
    assert done.returncode == 0, done.stderr
    for rank in json.loads(done.stdout)["ranks"]:
        assert rank["interface"]["payload_sent"] == pytest.approx(rank["bytes_sent"], rel=0.02)
