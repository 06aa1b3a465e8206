"""Runs that go on when ranks are killed, stopped or come back: really killed, and every sample counted in the model."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import psutil
import pytest
import torch
from safetensors.torch import load_file

from helpers.counting_runs import EPOCHS, SAMPLES, STEPS, TOTAL_BATCH, Running, recovery_seconds
from helpers.several_machines import Part
from minga.engines.joining import Invitation, join_run
from minga.errors import RankFailed, RunError
from minga.launch.listening import Listening
from minga.report.dataset.sources import find_runs
from minga.runs.experiment import Checkpoints

pytestmark = pytest.mark.chaos


@pytest.mark.parametrize("rank", [0, pytest.param(3, marks=pytest.mark.slow)])
def test_when_a_rank_is_killed_the_others_go_on_and_every_sample_counts_once(tmp_path: Path, rank: int) -> None:
    running = Running(tmp_path, "ring", nodes=4)
    running.wait_for_step(40)
    os.kill(running.pid(rank), signal.SIGKILL)
    killed = time.perf_counter()
    assert torch.equal(running.counts(), torch.full((SAMPLES,), float(EPOCHS), dtype=torch.float64))
    assert recovery_seconds(running, killed) < 2
    regrouped = running.events("recovered")
    assert {event["ranks"] for event in regrouped} == {3}
    # Everybody says who is gone, also who has seen another survivor's connection end first.
    assert {event["reason"] for event in regrouped} == {f"node-{rank} is gone: its connection ended"}
    assert running.end().steps == STEPS
    found = find_runs([running.directory])
    assert [run.lost for run in found.runs] == [[rank]]
    assert found.notes == [f"{running.directory.name}: rank {rank} got lost on the way; the others went on without it."]
    assert found.runs[0].training_losses[-1].epoch == EPOCHS


def test_a_rank_may_be_killed_that_others_wait_for_inside_of_forward_and_backward(tmp_path: Path) -> None:
    running = Running(tmp_path, "ring", nodes=3, data="normalised")
    running.wait_for_step(40)
    os.kill(running.pid(1), signal.SIGKILL)
    killed = time.perf_counter()
    assert torch.equal(running.counts(), torch.full((SAMPLES,), float(EPOCHS), dtype=torch.float64))
    assert recovery_seconds(running, killed) < 2


@pytest.mark.slow
def test_two_deaths_and_nobody_is_missed(tmp_path: Path) -> None:
    running = Running(tmp_path, "tree", nodes=4)
    for step, rank in ((30, 1), (80, 0)):
        running.wait_for_step(step)
        os.kill(running.pid(rank), signal.SIGKILL)
    assert torch.equal(running.counts(), torch.full((SAMPLES,), float(EPOCHS), dtype=torch.float64))


@pytest.mark.parametrize("data", ["workload", pytest.param("streamed", marks=pytest.mark.slow)])
def test_two_deaths_and_one_who_joins_and_every_sample_counts_once_in_each_of_three_epochs(
    tmp_path: Path, data: str
) -> None:
    where: list[tuple[str, int]] = []
    listening = Listening("127.0.0.2", here=3, tls=None, when_listening=lambda *place: where.append(place))
    running = Running(tmp_path, "ring", nodes=3, data=data, listening=listening)
    running.wait_for_step(15)
    with running.slowly():
        os.kill(running.pid(1), signal.SIGKILL)
        running.wait_for(lambda: [event for event in running.events("recovered", 2) if event["ranks"] == 2])
        address, port = running.wait_for(lambda: where)[0]
        invitation = Invitation(address=address, port=port, token=listening.token, runs=str(tmp_path / "elsewhere"))
        joined = Part(lambda: join_run(invitation))
        running.wait_for(lambda: [event for event in running.events("recovered", 0) if event["ranks"] == 3])
        os.kill(running.pid(0), signal.SIGKILL)
    summary = running.end()
    joined.end()
    assert summary.steps == STEPS
    # Whoever is first in the end has the model.
    (model,) = [*Path(summary.run).glob("model.safetensors"), *(tmp_path / "elsewhere").glob("*/model.safetensors")]
    counts = load_file(model)["counts.weight"].reshape(-1)
    assert torch.equal(counts, torch.full((SAMPLES,), float(EPOCHS), dtype=torch.float64))
    sizes = [event["ranks"] for event in running.events("recovered", 2)]
    assert sizes == [2, 3, 2]


@pytest.mark.slow
def test_a_rank_that_stays_stopped_does_not_hold_the_end_up(tmp_path: Path) -> None:
    running = Running(tmp_path, "ring", nodes=3, heartbeat_timeout_seconds=1.0)
    running.wait_for_step(20)
    stopped = running.pid(1)
    os.kill(stopped, signal.SIGSTOP)
    assert torch.equal(running.counts(), torch.full((SAMPLES,), float(EPOCHS), dtype=torch.float64))
    deadline = time.monotonic() + 5
    while psutil.pid_exists(stopped) and psutil.Process(stopped).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline, "it is still there"
        time.sleep(0.05)


def test_with_fewer_than_min_nodes_a_run_that_nobody_can_join_ends_and_says_so(tmp_path: Path) -> None:
    running = Running(tmp_path, "ring", nodes=3, min_nodes=2)
    running.wait_for_step(10)
    os.kill(running.pid(1), signal.SIGKILL)
    running.wait_for(lambda: running.events("recovered", 0))
    os.kill(running.pid(2), signal.SIGKILL)
    with pytest.raises(RunError, match="1 of the nodes is left, fewer than --min-nodes, and nobody can join"):
        running.end(20)


@pytest.mark.slow
def test_with_fewer_than_min_nodes_a_run_that_others_can_join_waits_and_goes_on(tmp_path: Path) -> None:
    where: list[tuple[str, int]] = []
    listening = Listening("127.0.0.2", here=2, tls=None, when_listening=lambda *place: where.append(place))
    running = Running(tmp_path, "ring", nodes=2, min_nodes=2, listening=listening)
    running.wait_for_step(20)
    os.kill(running.pid(1), signal.SIGKILL)
    waiting = running.wait_for(lambda: running.events("waiting", 0))[0]
    assert "1 worker is here, at least 2 needed (min_nodes)" in waiting["message"]
    before = max(event["step"] for event in running.events("step", 0))
    address, port = where[0]
    invitation = Invitation(address=address, port=port, token=listening.token, runs=str(tmp_path / "elsewhere"))
    joined = Part(lambda: join_run(invitation))
    running.wait_for(lambda: [event for event in running.events("recovered", 0) if event["ranks"] == 2])
    assert max(event["step"] for event in running.events("step", 0)) <= before + 2
    assert torch.equal(running.counts(), torch.full((SAMPLES,), float(EPOCHS), dtype=torch.float64))
    joined.end()


@pytest.mark.slow
def test_a_rank_that_was_stopped_comes_back_as_new(tmp_path: Path) -> None:
    running = Running(tmp_path, "ring", nodes=3, heartbeat_timeout_seconds=1.0)
    running.wait_for_step(20)
    with running.slowly():
        os.kill(running.pid(1), signal.SIGSTOP)
        try:
            running.wait_for(lambda: [event for event in running.events("recovered", 0) if event["ranks"] == 2])
        finally:
            os.kill(running.pid(1), signal.SIGCONT)
        running.wait_for(lambda: [event for event in running.events("recovered", 1) if event["ranks"] == 3])
    assert torch.equal(running.counts(), torch.full((SAMPLES,), float(EPOCHS), dtype=torch.float64))


@pytest.mark.slow
def test_a_rank_that_hangs_in_its_own_program_is_left_behind(tmp_path: Path) -> None:
    """Its process lives and gives signs of life; only those who wait for it can tell."""
    running = Running(tmp_path, "ring", nodes=3, heartbeat_timeout_seconds=0.5)
    running.wait_for_step(20)
    running.hanging.write_text(str(running.pid(1)))
    assert torch.equal(running.counts(), torch.full((SAMPLES,), float(EPOCHS), dtype=torch.float64))
    regrouped = running.events("recovered", 0)
    assert [event["ranks"] for event in regrouped] == [2]
    assert "node-1 makes no progress" in regrouped[0]["reason"]


def test_the_coordinator_may_be_killed(tmp_path: Path) -> None:
    running = Running(tmp_path, "ring", nodes=3)
    running.wait_for_step(20)
    before = running.coordinator()
    os.kill(before, signal.SIGKILL)
    running.wait_for_step(60)
    assert running.coordinator() != before
    os.kill(running.pid(2), signal.SIGKILL)  # the new one knows everybody
    assert torch.equal(running.counts(), torch.full((SAMPLES,), float(EPOCHS), dtype=torch.float64))


SLOWER = ("local_sgd:period=8,overlap=4", "hierarchical:site_size=2,across=(local_sgd:period=8)")
OF_GOSSIP = ("gossip", "gossip:algorithm=push_sum", "gossip:algorithm=asynchronous")


@pytest.mark.parametrize(
    "strategy",
    ["adaptive", OF_GOSSIP[0], *(pytest.param(each, marks=pytest.mark.slow) for each in (*OF_GOSSIP[1:], *SLOWER))],
)
def test_where_replicas_differ_no_more_than_some_steps_count_less_or_more_than_once(
    tmp_path: Path, strategy: str
) -> None:
    """As docs/faults.md says it: what a rank had not shared is done again, what others had not shared counts more."""
    running = Running(tmp_path, strategy, nodes=3)
    running.wait_for_step(90)
    os.kill(running.pid(0), signal.SIGKILL)
    assert running.end().steps >= STEPS
    off = running.counts() - EPOCHS
    # The one that is lost has used 360 samples: a third of them would be 120.
    less, more = float((-off).clamp(min=0).sum()), float(off.clamp(min=0).sum())
    assert less <= 2 * TOTAL_BATCH, f"{less:.1f} of {EPOCHS * SAMPLES} samples are lost"
    assert more <= 6 * TOTAL_BATCH, f"{more:.1f} of {EPOCHS * SAMPLES} samples count again"
    assert float(off.min()) > -1 or "gossip" in strategy, "a sample was left out in an epoch"


@pytest.mark.slow
def test_auto_plans_again_when_a_node_is_gone(tmp_path: Path) -> None:
    running = Running(tmp_path, "auto", nodes=3)
    running.wait_for_step(30)
    os.kill(running.pid(1), signal.SIGKILL)
    summary = running.end()
    assert summary.steps >= STEPS
    assert len(summary.planned) >= 2
    assert {event["ranks"] for event in running.events("recovered")} == {2}


@pytest.mark.slow
def test_a_rank_that_is_killed_before_it_has_begun_is_started_again(tmp_path: Path) -> None:
    (tmp_path / "dying").write_text("1")
    running = Running(tmp_path, "ring", nodes=3)
    assert torch.equal(running.counts(), torch.full((SAMPLES,), float(EPOCHS), dtype=torch.float64))
    assert not running.events("recovered")  # all three from the beginning to the end


@pytest.mark.slow
def test_a_run_whose_ranks_die_again_and_again_before_it_has_begun_ends_soon(tmp_path: Path) -> None:
    (tmp_path / "dying").write_text("100")
    running = Running(tmp_path, "ring", nodes=2)
    with pytest.raises(RankFailed, match="SIGKILL"):
        running.end(25)  # earlier than others give up waiting for it


@pytest.mark.slow
def test_who_has_lost_contact_goes_on_computing_and_writes_no_checkpoints(tmp_path: Path) -> None:
    """Those on the smaller side of a split can't reach the coordinator either."""
    running = Running(
        tmp_path,
        "ring",
        nodes=2,
        checkpoints=Checkpoints(every_steps=5, every_seconds=0),
        heartbeat_timeout_seconds=1.0,
    )
    running.wait_for_step(10)
    coordinator = running.coordinator()
    os.kill(coordinator, signal.SIGSTOP)
    try:
        running.wait_for(lambda: running.events("checkpoint_failed", 1))
        written = {event["checkpoint"] for event in running.events("checkpoint")}
    finally:
        os.kill(coordinator, signal.SIGCONT)
    failed = running.events("checkpoint_failed")
    assert all("lost contact" in event["message"] for event in failed)
    assert not written & {event["checkpoint"] for event in failed}
    assert torch.equal(running.counts(), torch.full((SAMPLES,), float(EPOCHS), dtype=torch.float64))
    assert not running.events("recovered")  # it was the coordinator that stood still, and nobody is blamed


def test_when_all_are_killed_the_run_has_failed(tmp_path: Path) -> None:
    running = Running(tmp_path, "ring", nodes=2)
    running.wait_for_step(10)
    for rank in (0, 1):
        os.kill(running.pid(rank), signal.SIGKILL)
    with pytest.raises(RankFailed, match="SIGKILL"):
        running.end()
