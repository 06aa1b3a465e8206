"""Runs as real processes."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import psutil
import pytest
import torch
from safetensors.torch import load_file

from minga import Cluster, Experiment, Summary, Training, run
from minga.errors import PortBusy, RankFailed, WorkloadError
from minga.runs.experiment import load

_PAIRS = "gossip:algorithm=asynchronous"


def train(tmp_path: Path, strategy: str | None, nodes: int, **training: object) -> Summary:
    return run(
        Experiment(
            workload="digits",
            strategy=strategy,
            cluster=Cluster(nodes=nodes),
            training=Training(**{"epochs": 2, **training}),
            runs=str(tmp_path),
        )
    )


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Summary:
    """One process with the whole batch."""
    return train(tmp_path_factory.mktemp("alone"), "single", 1, batch=24, steps=20, epochs=None)


def model_of(summary: Summary) -> torch.Tensor:
    return torch.cat([tensor.reshape(-1).double() for tensor in load_file(f"{summary.run}/model.safetensors").values()])


@pytest.mark.parametrize(
    "strategy",
    [
        "native",
        "ring",
        "ps:mode=sync,servers=2",
        # What ranks send each other is the same as in threads, where the others are tested too.
        *(
            pytest.param(each, marks=pytest.mark.slow)
            for each in (
                "tree",
                "halving_doubling",
                "mesh",
                "two_level:group_size=2",
                "ps:mode=sync,servers=2,placement=beside",
                "ps:mode=ssp,staleness=0",
            )
        ),
    ],
)
def test_processes_equal_one_process_with_the_whole_batch(tmp_path: Path, alone: Summary, strategy: str) -> None:
    together = train(tmp_path, strategy, 3, batch=8, steps=20, epochs=None)
    torch.testing.assert_close(model_of(together), model_of(alone), rtol=0, atol=1e-4)  # float32, other order of adding
    assert together.steps == alone.steps == 20
    assert together.samples == alone.samples


@pytest.mark.slow
def test_the_same_seed_gives_the_same_bits_on_processes(tmp_path: Path) -> None:
    first, again, other = (train(tmp_path, "ring", 3, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(model_of(first), model_of(again))
    assert not torch.equal(model_of(first), model_of(other))


def test_a_run_directory_has_everything(tmp_path: Path) -> None:
    summary = train(tmp_path, "ps:mode=async,servers=2", 2)
    directory = Path(summary.run)
    assert load(directory / "experiment.toml").cluster.nodes == 2
    assert sorted(path.name for path in (directory / "events").glob("rank-*")) == [
        f"rank-{rank}.jsonl" for rank in range(4)
    ]
    assert [rank.role for rank in summary.ranks] == ["worker", "worker", "server", "server"]
    assert summary.samples == 2 * 1438
    for rank in summary.ranks:
        assert rank.work_seconds > 0
        assert rank.wait_seconds >= 0
    assert summary.bytes_sent == sum(rank.bytes_sent for rank in summary.ranks) > 0


def test_the_bytes_of_a_ring_are_those_of_the_theory(tmp_path: Path) -> None:
    summary = train(tmp_path, "ring", 3, steps=10, epochs=None)
    vector = 4 * summary.parameters
    assert summary.bytes_sent == 10 * 2 * 2 * vector  # 2 (n-1) vectors in each step, all ranks together


def test_servers_beside_workers_live_in_their_processes(tmp_path: Path) -> None:
    summary = train(tmp_path, "ps:mode=sync,servers=2,placement=beside", 2)
    logs = sorted(path.name for path in (Path(summary.run) / "logs").glob("rank-*"))
    assert logs == ["rank-0.log", "rank-1.log"]
    assert [rank.role for rank in summary.ranks] == ["worker", "worker", "server", "server"]


def test_ranks_change_their_role_at_the_switch(tmp_path: Path) -> None:
    summary = train(tmp_path, "switch:at=7", 2)
    assert summary.switched_after == 7
    assert [rank.role for rank in summary.ranks] == ["worker", "worker", "worker, then server"]
    assert summary.ranks[2].steps == 7
    assert summary.samples == 2 * 1438  # every sample once per epoch, although the number of workers changed


@pytest.mark.slow
def test_two_runs_at_the_same_time_do_not_meet(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "minga", "train", "digits", "--nodes", "2", "--strategy", "ring", "--epochs", "2"]
    both = [subprocess.Popen([*command, "--runs", str(tmp_path), "--json"], stdout=subprocess.PIPE) for _ in range(2)]
    outputs = [process.communicate(timeout=120)[0] for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert outputs[0] and outputs[1]
    assert len(list(tmp_path.iterdir())) == 2


def write(path: Path, text: str) -> Path:
    path.write_text(textwrap.dedent(text))
    return path


BROKEN = """
    import os, signal, torch
    from torch import nn
    from torch.utils.data import TensorDataset
    from minga import Workload

    calls = 0

    def loss(outputs, targets):
        global calls
        calls += 1
        if calls == 5 and os.environ.get("PRETEND", "") == "raise" and targets.sum() >= 0 and IS_ONE():
            raise KeyError("the worker's own mistake")
        if calls == 5 and os.environ.get("PRETEND", "") == "kill" and IS_ONE():
            os.kill(os.getpid(), signal.SIGKILL)
        if calls >= 5 and os.environ.get("PRETEND", "") == "nan" and IS_ONE():
            return outputs.sum() * float("nan")
        return nn.functional.cross_entropy(outputs, targets)

    def IS_ONE():
        return "rank-1" in os.readlink("/proc/self/fd/1")

    data = TensorDataset(torch.randn(200, 4), torch.randint(0, 2, (200,)))
    workload = Workload(name="broken", model=lambda: nn.Linear(4, 2), train=data, test=data, loss=loss, batch=10)
    empty = Workload(name="empty", model=lambda: nn.Flatten(), train=data)
"""


def run_broken(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    how: str,
    strategy: str = "ring",
    transport: str | None = None,
    **training: object,
) -> None:
    monkeypatch.setenv("PRETEND", how)
    file = write(tmp_path / "broken.py", BROKEN)
    run(
        Experiment(
            workload=f"{file}:workload",
            strategy=strategy,
            cluster=Cluster(nodes=3, transport=transport),  # type: ignore[arg-type]
            training=Training(**training),
            runs=str(tmp_path / "runs"),
        )
    )


@pytest.mark.chaos
@pytest.mark.parametrize(
    "strategy",
    [
        "ring",
        "native",
        "ps:mode=async",
        *(pytest.param(each, marks=pytest.mark.slow) for each in ("ps:mode=sync", "gossip", _PAIRS)),
    ],
)
def test_a_worker_that_raises_is_named_with_its_own_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, strategy: str
) -> None:
    began = time.monotonic()
    with pytest.raises(RankFailed, match=r"rank 1 failed at step 5: KeyError: .*own mistake") as caught:
        run_broken(tmp_path, monkeypatch, "raise", strategy)
    assert caught.value.rank == 1
    assert "broken.py" in caught.value.traceback
    assert time.monotonic() - began < 30


@pytest.mark.chaos
def test_losses_that_are_no_numbers_name_rank_and_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RankFailed, match=r"loss is nan on rank 1 at step 6, and none of 2 steps in a row") as caught:
        run_broken(tmp_path, monkeypatch, "nan", non_finite_steps_in_a_row=2)
    assert caught.value.traceback == ""


@pytest.mark.chaos
def test_a_worker_that_is_killed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RankFailed, match=r"rank 1 was ended by SIGKILL"):
        run_broken(tmp_path, monkeypatch, "kill", transport="gloo")


@pytest.mark.chaos
def test_when_the_fork_server_is_killed_the_run_ends_and_says_how_to_go_on(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "minga", "train", "digits", "--nodes", "2", "--epochs", "1000"]
    launcher = subprocess.Popen(
        [*command, "--checkpoint-every", "10steps", "--runs", str(tmp_path)], stderr=subprocess.PIPE, text=True
    )
    try:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and not list(tmp_path.glob("*/checkpoints/*/rank-1.json")):
            time.sleep(0.1)
        fork_server = max(psutil.Process(launcher.pid).children(), key=lambda child: len(child.children()))
        ranks = fork_server.children()
        fork_server.kill()
        _, said = launcher.communicate(timeout=20)
        assert launcher.returncode == 1
        assert re.search(r"fork server was ended by SIGKILL.*fork-server\.log; .*minga train --resume", said), said
        assert not psutil.wait_procs(ranks, timeout=10)[1]
    finally:
        launcher.kill()
        launcher.communicate()


def test_a_model_without_parameters(tmp_path: Path) -> None:
    file = write(tmp_path / "broken.py", BROKEN)
    with pytest.raises(WorkloadError, match="Flatten has no parameters to train"):
        run(
            Experiment(workload=f"{file}:empty", strategy="ring", cluster=Cluster(nodes=2), runs=str(tmp_path / "runs"))
        )


def test_a_busy_port(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(PortBusy, match=rf"port {port}: Address already in use.*free one"):
            run(Experiment(workload="digits", cluster=Cluster(port=port, nodes=2), runs=str(tmp_path / "runs")))
        assert not (tmp_path / "runs").exists()


def tree_of(process: psutil.Process) -> list[psutil.Process]:
    return [process, *process.children(recursive=True)]


@pytest.mark.chaos
@pytest.mark.parametrize("how", [pytest.param(signal.SIGINT, marks=pytest.mark.slow), signal.SIGKILL])
def test_nothing_is_left_when_the_launcher_ends(tmp_path: Path, how: signal.Signals) -> None:
    command = [sys.executable, "-m", "minga", "train", "digits", "--nodes", "3", "--strategy", "ps:mode=ssp"]
    launcher = subprocess.Popen([*command, "--epochs", "1000", "--runs", str(tmp_path)], stderr=subprocess.PIPE)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and len(list(tmp_path.glob("*/events/*"))) < 4:
        time.sleep(0.1)
    processes = psutil.Process(launcher.pid).children(recursive=True)
    assert len(processes) >= 5  # fork server, 3 workers, a server
    began = time.monotonic()
    os.kill(launcher.pid, how)
    assert launcher.wait(timeout=10) == (130 if how == signal.SIGINT else -signal.SIGKILL)
    _, left = psutil.wait_procs(processes, timeout=10)
    assert not left
    assert time.monotonic() - began < 5
    assert launcher.stderr is not None
    launcher.stderr.close()


def test_nothing_listens_beyond_loopback(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "minga", "train", "digits", "--nodes", "2", "--strategy", "ring"]
    launcher = subprocess.Popen([*command, "--epochs", "1000", "--runs", str(tmp_path)], stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and not any(path.stat().st_size for path in tmp_path.glob("*/events/*")):
            time.sleep(0.1)
        listening = [
            connection.laddr.ip
            for process in tree_of(psutil.Process(launcher.pid))
            for connection in process.net_connections(kind="inet")
            if connection.status == psutil.CONN_LISTEN
        ]
        assert listening
        assert set(listening) == {"127.0.0.1"}
    finally:
        launcher.send_signal(signal.SIGINT)
        launcher.wait(timeout=20)
