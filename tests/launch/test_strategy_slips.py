"""Strategies with an author's slip, in real processes: the run ends, and the error says who waited for whom."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from helpers.several_machines import events, until, write_workload
from minga import Cluster, Experiment, Summary, Training, run
from minga.errors import StrategyError

pytestmark = pytest.mark.chaos

SLIP = """
    from dataclasses import dataclass
    from pathlib import Path

    import torch

    from minga import Strategy, all_reduce_mean


    @dataclass(frozen=True, kw_only=True)
    class Slip(Strategy):
        how: str = ""

        def step(self, replica, comm):
            other = 1 - comm.rank
            if replica.step < 4:
                pass
            elif self.how == "asymmetric" and comm.rank == 0:
                all_reduce_mean(comm, replica.parameters)
            elif self.how == "crossed":
                Path(__file__).with_name(f"waits {comm.rank}").touch()
                comm.receive(torch.empty(10), other)
                comm.send(torch.ones(10), other)
            elif self.how == "length" and comm.rank == 1:
                comm.send(torch.ones(5), 0)
            elif self.how == "type" and comm.rank == 1:
                comm.send(torch.ones(10, dtype=torch.float64), 0)
            elif self.how in ("length", "type"):
                comm.receive(torch.empty(10), 1)
            elif self.how == "once" and replica.step == 10:
                marker = Path(__file__).with_name(f"once {comm.rank}")
                if not marker.exists():
                    marker.touch()
                    comm.receive(torch.empty(10), other)
            all_reduce_mean(comm, replica.gradients)
            replica.update()
"""


def strategy(tmp_path: Path, how: str) -> str:
    (tmp_path / "mine.py").write_text(textwrap.dedent(SLIP))
    return f"{tmp_path / 'mine.py'}:Slip:how={how}"


def train(tmp_path: Path, how: str, **cluster: float) -> Summary:
    return run(
        Experiment(
            workload=f"{write_workload(tmp_path, slow=0.001)}:workload",
            strategy=strategy(tmp_path, how),  # type: ignore[arg-type]
            cluster=Cluster(nodes=2, **{"timeout_seconds": 1.5, "heartbeat_timeout_seconds": 1, **cluster}),
            training=Training(steps=60, total_batch=12, evaluate_every=0),
            runs=str(tmp_path / "runs"),
        )
    )


@pytest.mark.parametrize(
    ("how", "said"),
    [
        (
            "crossed",
            r"step 4 was given up, twice in a row, and all 2 ranks were there, waiting for each other: "
            r"rank 0 waited to receive 10 float32 from rank 1 in step 4, at mine\.py:22 \(step\); "
            r"rank 1 waited to receive 10 float32 from rank 0 in step 4, at mine\.py:22 \(step\)\. All ranks must make",
        ),
        (
            "asymmetric",
            # Where each one was depends on who has noticed first.
            r"given up, .*rank 0 waited .* in step \d+, at \w+\.py:\d+ .*; rank 1 waited .*All ranks",
        ),
        (
            "length",
            r"rank 1 sent 20 bytes where 40 were expected \(the last that rank 1 had sent to it was 5 float32\): "
            r"rank 0 waited to receive 10 float32 from rank 1 in step 4, at mine\.py:29 \(step\)",
        ),
        (
            "type",
            r"rank 1 sent 80 bytes where 40 were expected \(the last that rank 1 had sent to it was 10 float64\): "
            r"rank 0 waited to receive 10 float32 from rank 1 in step 4, at mine\.py:29 \(step\)",
        ),
    ],
)
def test_the_run_ends_and_the_error_says_who_waited_for_whom(tmp_path: Path, how: str, said: str) -> None:
    with pytest.raises(StrategyError, match=said):
        train(tmp_path, how)
    failed = events(tmp_path / "runs", "failed")
    assert {(event["rank"], event["kind"]) for event in failed} == {(0, "StrategyError"), (1, "StrategyError")}


def test_waiting_for_each_other_once_is_survived(tmp_path: Path) -> None:
    """As where a network has lost a message: after that all is well."""
    assert train(tmp_path, "once").steps == 60
    assert {event["rank"] for event in events(tmp_path / "runs", "recovered")} == {0, 1}


def test_sigterm_ends_a_run_whose_ranks_wait_for_each_other(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "minga", "train", f"{write_workload(tmp_path)}:workload", "--nodes", "2"]
    options = ["--strategy", strategy(tmp_path, "crossed"), "--runs", str(tmp_path / "runs")]
    launcher = subprocess.Popen([*command, *options], stderr=subprocess.PIPE)
    try:
        until(lambda: all((tmp_path / f"waits {rank}").exists() for rank in range(2)), 60)
        launcher.send_signal(signal.SIGTERM)
        began = time.monotonic()
        assert launcher.wait(20) == 128 + signal.SIGTERM  # long before the deadline of 120 s for a message
        assert time.monotonic() - began < 15
    finally:
        launcher.kill()
        launcher.communicate()
