"""What a training loop sees of checkpoints: the best one, failures, strategies that can't be kept."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from helpers.going_on import experiment_of
from minga import Replica, Strategy, Transport, all_reduce_mean
from minga.comm.threads import ThreadWorld
from minga.errors import PeerLost
from minga.measure.recorder import Recorder
from minga.runs.directory import event_file
from minga.runs.experiment import Checkpoints
from minga.strategies import AllReduce
from minga.testing.problems import adam, blobs
from minga.testing.worlds import PatientManager, train_with_checkpoints
from minga.training.checkpoints.files import best_of, list_checkpoints
from minga.training.checkpoints.manager import CheckpointManager
from minga.training.checkpoints.resume import rewind_events
from minga.training.run_log import RunLog
from minga.training.train_state import build_train_state


def events(run: Path, rank: int, kind: str) -> list[dict[str, Any]]:
    lines = event_file(run, rank).read_text().splitlines()
    return [event for event in map(json.loads, lines) if event["event"] == kind]


def test_the_best_at_an_evaluation_is_kept(tmp_path: Path) -> None:
    experiment = experiment_of("ring", 2, epochs=8, steps=None, evaluate_every=1)
    settings = Checkpoints(every_seconds=0, keep=1)
    train_with_checkpoints(tmp_path, dataclasses.replace(experiment, checkpoints=settings), blobs(optimizer=adam))
    found = {event["step"]: event["metrics"]["accuracy"] for event in events(tmp_path, 0, "evaluated")}
    found.pop(max(found))  # of the end, after which nothing goes on
    best = best_of(list_checkpoints(tmp_path))
    assert best is not None and best.problem() is None
    assert best.manifest(1).value == max(found.values())
    assert best.order[1] == next(step for step, value in found.items() if value == max(found.values()))


def test_what_it_costs_is_in_the_events(tmp_path: Path) -> None:
    train_with_checkpoints(tmp_path, experiment_of("ring", 2), blobs())
    written = events(tmp_path, 1, "checkpoint")
    assert [event["step"] for event in written] == [7, 14, 21, 28]
    for event in written:
        assert event["bytes"] > 0 and event["taking_seconds"] > 0 and event["writing_seconds"] > 0


def test_a_disk_that_fails_does_not_end_training(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "checkpoints").write_text("in the way")
    train_states = train_with_checkpoints(tmp_path, experiment_of("ring", 2), blobs())
    assert train_states[0].replica.step == 30
    failed = events(tmp_path, 0, "checkpoint_failed")
    assert failed[0]["checkpoint"] == "step-00000007"
    assert "Error" in failed[0]["message"]
    assert "could not keep checkpoint step-00000007" in caplog.text


@dataclass
class Spring:
    """What the strategy below remembers."""

    centre: torch.Tensor
    pulls: int = 0


@dataclass(frozen=True, kw_only=True)
class Elastic(Strategy):
    """A strategy of somebody who has never heard of checkpoints."""

    hopeless: bool = False
    """Whether to keep something that can't be kept."""

    def start(self, replica: Replica, comm: Transport) -> None:
        super().start(replica, comm)
        replica.state["spring"] = Spring(replica.parameters.clone())
        replica.state["chance"] = torch.Generator().manual_seed(comm.rank)
        if self.hopeless:
            replica.state["file"] = object()

    def step(self, replica: Replica, comm: Transport) -> None:
        replica.update()
        spring: Spring = replica.state["spring"]
        if float(torch.rand(1, generator=torch.Generator().manual_seed(replica.step))) < 0.5:
            spring.pulls += 1
            mean = replica.parameters.clone()
            all_reduce_mean(comm, mean, codec=self.codec)
            replica.parameters.lerp_(spring.centre, 0.1 + 0.3 * float(torch.rand(1, generator=replica.state["chance"])))
            spring.centre.lerp_(mean, 1 / (1 + spring.pulls))


def test_a_strategy_of_ones_own_needs_nothing(tmp_path: Path) -> None:
    experiment = experiment_of(Elastic(), 3)
    kept = train_with_checkpoints(tmp_path, experiment, blobs(optimizer=adam))
    resumed = train_with_checkpoints(tmp_path, experiment, blobs(optimizer=adam), resume="step-00000014")
    for rank in range(3):
        assert torch.equal(resumed[rank].replica.parameters, kept[rank].replica.parameters)
    assert resumed[0].replica.state["spring"].pulls == kept[0].replica.state["spring"].pulls


def test_a_strategy_that_can_not_be_kept_trains_on_and_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    train_states = train_with_checkpoints(tmp_path, experiment_of(Elastic(hopeless=True), 2), blobs())
    assert train_states[0].replica.step == 30
    assert list_checkpoints(tmp_path) == []
    assert "replica.state['file'] is a object, which a checkpoint can't keep" in caplog.text
    assert len(events(tmp_path, 1, "checkpoint_failed")) == 4


def test_events_after_the_checkpoint_did_not_happen(tmp_path: Path) -> None:
    experiment = experiment_of("ring", 2, epochs=5, steps=None, evaluate_every=1)
    train_with_checkpoints(tmp_path, experiment, blobs())
    totals = events(tmp_path, 0, "finished")[0]
    checkpoint = list_checkpoints(tmp_path)[1]
    rewind_events(tmp_path, checkpoint)
    for rank in (0, 1):
        assert [event["step"] for event in events(tmp_path, rank, "step")] == list(range(1, 15))
        assert events(tmp_path, rank, "finished") == []
    train_with_checkpoints(tmp_path, experiment, blobs(), resume=checkpoint.name)
    (resumed,) = events(tmp_path, 0, "resumed")
    assert (resumed["step"], resumed["checkpoint"]) == (14, checkpoint.name)
    again = events(tmp_path, 0, "finished")[0]
    for name in ("steps", "samples", "bytes_sent", "messages_sent"):
        assert again[name] == totals[name], name


@pytest.mark.parametrize("afterwards", [{}, {"accuracy": 0.5}])
def test_a_best_that_a_lost_rank_has_no_part_of_is_given_up(tmp_path: Path, afterwards: dict[str, float]) -> None:
    """It would never be whole, and keep lesser ones from being kept."""
    experiment = experiment_of("ring", 1)
    train_state, recorder = build_train_state(experiment, blobs(), 0), Recorder(None)
    checkpoints = CheckpointManager(tmp_path, Checkpoints(every_seconds=0, keep=1), train_state, recorder)
    checkpoints.goes_on = True
    comm = ThreadWorld(1).transport(0)
    run_log = RunLog(train_state.replica, comm, recorder, experiment)
    with contextlib.suppress(PeerLost), checkpoints.attach(AllReduce(), comm, run_log):
        AllReduce().start(train_state.replica, comm)
        train_state.replica.step = 3  # no step at which a checkpoint is due
        checkpoints.stepped(good=True, metrics={"accuracy": 0.9})
        raise PeerLost("rank 1 is gone", rank=1)
    assert list_checkpoints(tmp_path) == []
    with contextlib.suppress(RuntimeError), checkpoints.attach(AllReduce(), comm, run_log):
        checkpoints.stepped(good=True, metrics=afterwards)
        raise RuntimeError("the end")
    kept = [checkpoint.manifest(0).value for checkpoint in list_checkpoints(tmp_path)]
    assert kept == list(afterwards.values())


@pytest.mark.parametrize("every_steps", [0, 1])
def test_what_is_no_number_is_not_the_best(tmp_path: Path, every_steps: int) -> None:
    experiment = experiment_of("ring", 1)
    train_state, recorder = build_train_state(experiment, blobs(), 0), Recorder(None)
    settings = Checkpoints(every_steps=every_steps, every_seconds=0, keep=1)
    checkpoints = PatientManager(tmp_path, settings, train_state, recorder)
    comm = ThreadWorld(1).transport(0)
    with checkpoints.attach(AllReduce(), comm, RunLog(train_state.replica, comm, recorder, experiment)):
        AllReduce().start(train_state.replica, comm)
        for step, value in enumerate([math.nan, 0.9, 0.5, math.nan], start=1):
            train_state.replica.step = step
            checkpoints.stepped(good=True, metrics={"accuracy": value})
    best = best_of(list_checkpoints(tmp_path))
    assert best is not None and best.manifest(0).value == 0.9


def test_who_has_lost_contact_to_the_others_writes_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Those on the other side of a split may have gone on from somewhere else."""
    experiment = experiment_of("ring", 1, every_steps=1)
    train_state, recorder = build_train_state(experiment, blobs(), 0), Recorder(None)
    checkpoints = PatientManager(tmp_path, experiment.checkpoints, train_state, recorder)
    contact = True
    checkpoints.may_write = lambda: contact
    comm = ThreadWorld(1).transport(0)
    with checkpoints.attach(AllReduce(), comm, RunLog(train_state.replica, comm, recorder, experiment)):
        AllReduce().start(train_state.replica, comm)
        for step in (1, 2, 3):
            contact = step != 3  # when the checkpoint of the second step is to be written
            train_state.replica.step = step
            checkpoints.stepped(good=True, metrics={})
        contact = True
    assert [checkpoint.name for checkpoint in list_checkpoints(tmp_path)] == ["step-00000001", "step-00000003"]
    assert "step-00000002" in caplog.text and "has lost contact with the others" in caplog.text
