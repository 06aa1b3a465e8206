"""Every test leaves the process as it found it: no threads, children, environment variables."""

from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = "1"  # for child processes too: several ranks share two cores here
os.environ["KERAS_BACKEND"] = "torch"  # as minga sets it before it reads users' files
os.environ["XDG_DATA_HOME"] = "/nonexistent"  # data sets that this user has fetched are not the tests' business

import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest
import torch

from helpers.left_behind import Belongings
from helpers.warm_start import cold, start_warm
from minga.data import read_ahead
from minga.errors import LabError
from minga.lab.limits import check_rights

# Jobs in the background, such as those of nohup, have it ignored, and programs that tests interrupt would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)

# The same examples every time: a test that fails now and then teaches people to run it again.
hypothesis.settings.register_profile("steady", derandomize=True)
hypothesis.settings.load_profile("steady")


start_warm()


@pytest.fixture(autouse=True)
def nothing_left_behind() -> Iterator[None]:
    before = Belongings()
    yield
    deadline = time.monotonic() + 5
    while (before.threads() or before.processes()) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not (left := before.threads()), f"threads left behind: {left}"
    assert not (processes := before.processes()), f"processes left behind: {processes}"
    assert not (changed := before.variables()), f"environment variables changed: {changed}"


@pytest.fixture
def cold_start() -> Iterator[None]:
    """Programs of Minga are started as everybody does, without what `helpers.warm_start` spares."""
    with cold():
        yield


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> None:
    """Ranks are threads or processes here; torch's own threads would only get in their way."""
    torch.set_num_threads(1)


@pytest.fixture(autouse=True, scope="session")
def readers_that_leave_at_once() -> None:
    """Threads that read ahead end when they have had nothing to do for a while, and tests wait for that."""
    read_ahead._IDLE_SECONDS = 0.05


@pytest.fixture(scope="session")
def labs_possible() -> None:
    """Labs need rights that not every user has."""
    try:
        check_rights()
    except LabError as error:
        pytest.skip(str(error))


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A real file system of 1 MB."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place)], capture_output=True)
    if mounted.returncode:
        pytest.skip(f"no file system can be mounted here: {mounted.stderr.decode().strip()}")
    try:
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)
