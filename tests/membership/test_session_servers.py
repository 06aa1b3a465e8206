"""Parameter servers and their workers, really killed: every sample counts once in what the servers have."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch

from helpers import counting_runs
from helpers.counting_runs import SAMPLES, TOTAL_BATCH, Running, recovery_seconds
from minga.errors import RankFailed
from minga.strategies.parameter_server.files import ShardFiles

pytestmark = pytest.mark.chaos

EPOCHS = 2
COUNTER = counting_runs.COUNTER.replace("epochs=3", f"epochs={EPOCHS}").replace("sleep(0.02)", "sleep(0.015)")

# What follows runs in the ranks, as a part of the workload's file.
DIES = """

import os, signal
from pathlib import Path
from minga.strategies.parameter_server.strategy import ParameterServer
from minga.strategies.parameter_server.server import Server

def die_once(who):
    marker = Path(__file__).with_name(f"dead {who}")
    if not marker.exists():
        marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)
"""

SERVER_DIES_BEFORE_ITS_SECOND_ANSWER = """
answered = []
send = Server._send_parameters

def send_or_die(self, worker, **options):
    if self._log.version >= 50:
        answered.append(worker)
        if len(answered) == 2:
            die_once("server")
    send(self, worker, **options)

Server._send_parameters = send_or_die
"""

WORKER_DIES_BEFORE_ITS_ANSWER = """
push = ParameterServer._push

def push_and_die(self, replica, comm, kind):
    sent = push(self, replica, comm, kind)
    if replica.step == 30 and replica.rank == 1:
        time.sleep(0.1)
        die_once("worker")
    return sent

ParameterServer._push = push_and_die
"""

WORKER_DIES_BETWEEN_TWO_SERVERS = """
push = ParameterServer._push

class Half:
    def __init__(self, comm):
        self._comm = comm

    def __getattr__(self, name):
        return getattr(self._comm, name)

    def isend(self, tensor, to, tag=0):
        if to == self._comm.size - 1:
            time.sleep(0.1)  # the first server has applied it, and the other workers have gone on
            die_once("worker")
        return self._comm.isend(tensor, to, tag)

def push_half(self, replica, comm, kind):
    return push(self, replica, Half(comm) if replica.step == 30 and replica.rank == 1 else comm, kind)

ParameterServer._push = push_half
"""

TAKES_SNAPSHOTS_OFTEN = """
from functools import partial
from minga.strategies.parameter_server import disk_log
disk_log.SnapshotRule = partial(disk_log.SnapshotRule, updates=4)
"""

KEEPS_LOGS = """
from minga.strategies.parameter_server.files import ShardFiles
ShardFiles.remove = ShardFiles.close
ShardFiles.remove_before = lambda self, number: None
"""


# Each of them starts some processes, which takes longer than all the rest: so there is more than one death in a run.


def start(tmp_path: Path, *injected: str, **more: Any) -> Running:
    return Running(tmp_path, counter=COUNTER + "".join(injected), **more)


def all_once(running: Running) -> bool:
    counts = running.counts()
    return torch.allclose(counts, torch.full((SAMPLES,), float(EPOCHS), dtype=torch.float64), atol=1e-9)


def kill(running: Running, *ranks: int) -> float:
    """Whoever is these ranks now."""
    for rank in ranks:
        running.wait_for(lambda rank=rank: running.events("started", rank))
    for pid in [int(running.events("started", rank)[-1]["pid"]) for rank in ranks]:
        os.kill(pid, signal.SIGKILL)
    return time.perf_counter()


def wait_for_another(running: Running, rank: int, times: int = 2) -> None:
    running.wait_for(lambda: len(running.events("started", rank)) >= times)


def last_size(running: Running) -> int:
    """How many there were in the end."""
    return int(max(running.events("recovered"), key=lambda event: float(event["time"]))["ranks"])


def log(running: Running, rank: int) -> str:
    return (running.directory / "logs" / f"rank-{rank}.log").read_text()


def test_in_step(tmp_path: Path) -> None:
    injected = (
        DIES,
        WORKER_DIES_BETWEEN_TWO_SERVERS,
        SERVER_DIES_BEFORE_ITS_SECOND_ANSWER,
        TAKES_SNAPSHOTS_OFTEN,
    )
    running = start(tmp_path, *injected, strategy="ps:servers=2", nodes=3)
    killed = []
    for who in ("worker", "server"):  # at step 30, at step 50
        running.wait_for(lambda who=who: (tmp_path / f"dead {who}").exists())
        killed.append(time.perf_counter())
    running.wait_for_step(62)
    killed.append(kill(running, 0, 4))
    assert all_once(running)
    assert running.end().steps == EPOCHS * SAMPLES // TOTAL_BATCH
    assert last_size(running) == 3
    for moment in killed:
        assert recovery_seconds(running, moment) < 2
    assert not (running.directory / "servers" / "server-0").exists()  # nobody needs it any more


@pytest.mark.slow
def test_not_in_step_and_what_is_in_the_logs(tmp_path: Path) -> None:
    injected = (DIES, WORKER_DIES_BETWEEN_TWO_SERVERS, KEEPS_LOGS)
    strategy = "ps:servers=2,mode=async,damping=workers"
    running = start(tmp_path, *injected, strategy=strategy, nodes=3)
    running.wait_for(lambda: (tmp_path / "dead worker").exists())
    running.wait_for_step(60)
    kill(running, 4)
    assert all_once(running)
    applied = torch.zeros(SAMPLES)
    taken_back = [count_in_log(running, server, half) for server, half in enumerate(applied.split(SAMPLES // 2))]
    assert taken_back[0] >= 1  # what the first server had and the second had not
    assert torch.equal(applied, torch.full((SAMPLES,), float(EPOCHS)))


def count_in_log(running: Running, server: int, counts: torch.Tensor) -> int:
    """Add what a server has applied of its part, by its log alone; how many pushes were taken back."""
    records = list(ShardFiles(running.directory / "servers" / f"server-{server}").records(1))
    undone = {(member, number) for facts, _ in records for member, number in facts.get("undone", ())}
    keys = Counter((push[0], push[1]) for facts, _ in records for push in facts.get("pushes", ()))
    assert max(keys.values()) == 1
    for facts, content in records:
        counted = [push for push in facts.get("pushes", ()) if push[3]]
        gradients = torch.frombuffer(bytearray(content), dtype=torch.float64).split(len(counts)) if content else ()
        for push, gradient in zip(counted, gradients, strict=True):
            if (push[0], push[1]) not in undone:
                counts += gradient != 0
    return len(undone)


@pytest.mark.slow
def test_at_most_some_steps_apart_with_servers_beside_workers(tmp_path: Path) -> None:
    injected = (DIES, WORKER_DIES_BEFORE_ITS_ANSWER, TAKES_SNAPSHOTS_OFTEN)
    strategy = "ps:servers=2,mode=ssp,staleness=2,damping=workers,placement=beside"
    running = start(tmp_path, *injected, strategy=strategy, nodes=3)
    wait_for_another(running, 1)  # it has died, and a server with it
    running.wait_for_step(60)
    kill(running, 0)
    assert all_once(running)
    assert last_size(running) == 5  # the workers that lived there are back, too


@pytest.mark.slow
def test_a_server_that_is_stopped_and_one_that_has_lost_its_disk(tmp_path: Path) -> None:
    running = start(tmp_path, strategy="ps", nodes=2, heartbeat_timeout_seconds=1.0)
    running.wait_for_step(20)
    os.kill(running.pid(2), signal.SIGSTOP)
    wait_for_another(running, 2)
    running.wait_for_step(50)
    pid = int(running.events("started", 2)[-1]["pid"])
    os.kill(pid, signal.SIGSTOP)
    shutil.rmtree(running.directory / "servers" / "server-0")
    os.kill(pid, signal.SIGKILL)
    assert all_once(running)
    assert "was restored to version" in log(running, 2)
    assert "has lost its part of the parameters, on disk too" in log(running, 2)


@pytest.mark.slow
def test_before_and_after_a_switch(tmp_path: Path) -> None:
    running = start(tmp_path, strategy="switch:at=45,mode=sync", nodes=3)
    running.wait_for_step(20)
    kill(running, 0, 3)
    wait_for_another(running, 3)
    assert not running.events("serving", 3)
    running.wait_for_step(65)
    kill(running, 1, 3)
    assert all_once(running)
    assert running.end().steps == EPOCHS * SAMPLES // TOTAL_BATCH
    assert len(running.events("serving", 3)) >= 2


def test_servers_alone_do_not_wait_for_ever(tmp_path: Path) -> None:
    running = start(tmp_path, strategy="ps", nodes=2)
    running.wait_for_step(2)
    kill(running, 0, 1)
    with pytest.raises(RankFailed, match="SIGKILL"):
        running.end()
