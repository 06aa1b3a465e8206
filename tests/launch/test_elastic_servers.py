"""Parameter servers and their workers, really killed: every sample counts once in what the servers have."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections import Counter
from pathlib import Path

import pytest
import test_elastic
import torch
from test_elastic import SAMPLES, TOTAL_BATCH, Running, recovery_seconds

from minga.errors import RankFailed
from minga.servers.files import ShardFiles

pytestmark = pytest.mark.chaos

EPOCHS = 2
COUNTER = test_elastic.COUNTER.replace("epochs=3", f"epochs={EPOCHS}").replace("sleep(0.02)", "sleep(0.01)")

# What follows runs in the ranks, as a part of the workload's file.
DIES = """

import os, signal
from pathlib import Path
from minga.strategies.parameter_server import ParameterServer
from minga.strategies.server import Server

def die_once():
    marker = Path(__file__).with_name("died")
    if not marker.exists():
        marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)
"""

SERVER_DIES_BEFORE_ITS_SECOND_ANSWER = """
answered = []
send = Server._send_parameters

def send_or_die(self, worker, **options):
    if self._ledger.version >= 30:
        answered.append(worker)
        if len(answered) == 2:
            die_once()
    send(self, worker, **options)

Server._send_parameters = send_or_die
"""

WORKER_DIES_BEFORE_ITS_ANSWER = """
push = ParameterServer._push

def push_and_die(self, replica, comm, kind):
    sent = push(self, replica, comm, kind)
    if replica.step == 30 and replica.rank == 1:
        time.sleep(0.1)
        die_once()
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
            die_once()
        return self._comm.isend(tensor, to, tag)

def push_half(self, replica, comm, kind):
    return push(self, replica, Half(comm) if replica.step == 30 and replica.rank == 1 else comm, kind)

ParameterServer._push = push_half
"""

KEEPS_LOGS = """
from minga.servers.files import ShardFiles
ShardFiles.remove = ShardFiles.close
ShardFiles.remove_before = lambda self, number: None
"""


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(test_elastic, "COUNTER", COUNTER)


def all_once(running: Running) -> bool:
    counts = running.counts()
    return torch.allclose(counts, torch.full((SAMPLES,), float(EPOCHS), dtype=torch.float64), atol=1e-9)


def kill(running: Running, *ranks: int) -> float:
    for pid in [running.pid(rank) for rank in ranks]:
        os.kill(pid, signal.SIGKILL)
    return time.perf_counter()


def log(running: Running, rank: int) -> str:
    return (running.directory / "logs" / f"rank-{rank}.log").read_text()


@pytest.mark.parametrize("ranks", [(1,), (4,), (0, 3)], ids=["worker", "server", "both"])
def test_in_step_whoever_is_killed(tmp_path: Path, ranks: tuple[int, ...]) -> None:
    running = Running(tmp_path, "ps:servers=2", nodes=3)
    running.wait_for_step(30)
    killed = kill(running, *ranks)
    assert all_once(running)
    assert running.end().steps == EPOCHS * SAMPLES // TOTAL_BATCH
    assert recovery_seconds(running, killed) < 2
    workers = 3 - sum(rank < 3 for rank in ranks)
    assert {event["ranks"] for event in running.events("regrouped")} <= {workers + 2, 5}
    assert not (running.directory / "servers" / "server-0").exists()  # nobody needs it any more


@pytest.mark.parametrize("mode", ["async", "ssp,staleness=2"])
def test_not_in_step_whoever_is_killed(tmp_path: Path, mode: str) -> None:
    running = Running(tmp_path, f"ps:servers=2,damping=workers,mode={mode}", nodes=3)
    running.wait_for_step(25)
    kill(running, 2, 3)
    running.wait_for(lambda: running.events("regrouped", 0))
    running.wait_for_step(60)
    kill(running, 4)
    assert all_once(running)


@pytest.mark.parametrize(
    ("strategy", "what"),
    [
        ("ps:servers=2", SERVER_DIES_BEFORE_ITS_SECOND_ANSWER),
        ("ps:servers=2,mode=async,damping=workers", SERVER_DIES_BEFORE_ITS_SECOND_ANSWER),
        ("ps", WORKER_DIES_BEFORE_ITS_ANSWER),
        ("ps:servers=2", WORKER_DIES_BETWEEN_TWO_SERVERS),
    ],
    ids=["server", "server-async", "worker", "worker-between"],
)
def test_between_a_push_and_its_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, strategy: str, what: str
) -> None:
    monkeypatch.setattr(test_elastic, "COUNTER", COUNTER + DIES + what)
    running = Running(tmp_path, strategy, nodes=2)
    assert all_once(running)
    assert (tmp_path / "died").exists()
    assert running.events("regrouped")


def test_what_servers_have_applied_is_in_their_logs_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    injected = COUNTER + DIES + WORKER_DIES_BETWEEN_TWO_SERVERS + KEEPS_LOGS
    monkeypatch.setattr(test_elastic, "COUNTER", injected)
    running = Running(tmp_path, "ps:servers=2,mode=async,damping=workers", nodes=3)
    assert all_once(running)
    taken_back = 0
    applied = torch.zeros(SAMPLES)
    for server, half in enumerate(applied.split(SAMPLES // 2)):
        records = list(ShardFiles(running.directory / "servers" / f"server-{server}").records(1))
        undone = {(member, number) for facts, _ in records for member, number in facts.get("undone", ())}
        taken_back += len(undone)
        keys = Counter((push[0], push[1]) for facts, _ in records for push in facts.get("pushes", ()))
        assert max(keys.values()) == 1
        for facts, content in records:
            gradients = torch.frombuffer(bytearray(content), dtype=torch.float64) if content else torch.empty(0)
            counted = [push for push in facts.get("pushes", ()) if push[3]]
            for push, gradient in zip(counted, gradients.split(SAMPLES // 2), strict=False):
                if (push[0], push[1]) not in undone:
                    half += gradient != 0
    assert taken_back >= 1
    assert torch.equal(applied, torch.full((SAMPLES,), float(EPOCHS)))


def test_servers_beside_workers_come_back_with_them(tmp_path: Path) -> None:
    running = Running(tmp_path, "ps:servers=2,placement=beside", nodes=3)
    running.wait_for_step(30)
    kill(running, 0)
    assert all_once(running)
    assert running.events("regrouped")[-1]["ranks"] == 5  # the worker that lived there is back, too


def test_a_server_that_is_stopped_is_replaced(tmp_path: Path) -> None:
    running = Running(tmp_path, "ps", nodes=2, heartbeat_timeout_seconds=1.0)
    running.wait_for_step(20)
    os.kill(running.pid(2), signal.SIGSTOP)
    assert all_once(running)


def test_without_its_disk_a_server_goes_on_from_a_worker(tmp_path: Path) -> None:
    running = Running(tmp_path, "ps", nodes=2)
    running.wait_for_step(20)
    os.kill(running.pid(2), signal.SIGSTOP)
    shutil.rmtree(running.directory / "servers" / "server-0")
    os.kill(running.pid(2), signal.SIGKILL)
    assert all_once(running)
    assert "has lost its part of the parameters, on disk too" in log(running, 2)


@pytest.mark.parametrize("at", [70, 15], ids=["before", "after"])
def test_around_a_switch(tmp_path: Path, at: int) -> None:
    running = Running(tmp_path, f"switch:at={at},mode=sync", nodes=2)
    running.wait_for_step(35)
    kill(running, 0, 2)
    assert all_once(running)
    assert running.end().steps == EPOCHS * SAMPLES // TOTAL_BATCH
    assert running.events("serving", 2)


def test_servers_alone_do_not_wait_for_ever(tmp_path: Path) -> None:
    running = Running(tmp_path, "ps", nodes=2)
    running.wait_for_step(10)
    kill(running, 0, 1)
    with pytest.raises(RankFailed, match="SIGKILL"):
        running.end()
