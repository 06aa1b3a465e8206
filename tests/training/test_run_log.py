"""What counts as training in every number: from start to finish, without evaluations."""

from __future__ import annotations

import dataclasses
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from minga import Cluster, Experiment, Training, Workload
from minga.comm.threads import run_threads
from minga.comm.traced import TracedTransport
from minga.comm.transport import Transport
from minga.measure.event_reader import read_events
from minga.measure.events import Evaluated, Event, Finished, Sampled
from minga.measure.interfaces import InterfaceCounts
from minga.measure.recorder import Recorder
from minga.runs.experiment import Measuring
from minga.runs.network import Network
from minga.training.loop import train
from minga.training.run_log import metering_of
from minga.training.train_state import build_train_state

DATA = TensorDataset(torch.randn(64, 4), torch.randint(0, 2, (64,)))


def slow_when_tested(outputs: Tensor, targets: Tensor) -> Tensor:
    time.sleep(0.3)
    return torch.zeros(len(targets))


WORKLOAD = Workload(
    name="tiny", model=lambda: nn.Linear(4, 2), train=DATA, test=DATA, metrics={"slow": slow_when_tested}, batch=8
)


def experiment(interval: float = 0.05, **changes: Any) -> Experiment:
    return Experiment(
        workload="digits", training=Training(epochs=3), measuring=Measuring(interval_seconds=interval), **changes
    )


def run_one(folder: Path, described: Experiment) -> list[Event]:
    def body(comm: Transport) -> None:
        recorder = Recorder(folder / "rank-0.jsonl")
        train_state = build_train_state(described, WORKLOAD, 0, recorder.spans)
        spans = recorder.spans
        train(described, train_state, TracedTransport(comm, recorder.traffic, lambda: spans.span("wait")), recorder)
        recorder.close()

    run_threads(1, body)
    return list(read_events(folder / "rank-0.jsonl"))


def test_evaluations_come_several_times_in_an_epoch_where_that_is_asked_for(tmp_path: Path) -> None:
    often = dataclasses.replace(experiment(), training=Training(epochs=2, evaluate_every=0.5))
    moments = [event.epoch for event in run_one(tmp_path, often) if isinstance(event, Evaluated)]
    assert moments == [0.5, 1.0, 1.5, 2.0]


def test_samples_cover_training_and_not_its_evaluations(tmp_path: Path) -> None:
    events = run_one(tmp_path, experiment())
    kinds = [event.event for event in events if event.event != "step"]
    assert kinds[0] == "started"
    assert kinds[-2:] == ["finished", "evaluated"]
    assert kinds[-3] == "sample"
    samples = [event for event in events if isinstance(event, Sampled)]
    finished = next(event for event in events if isinstance(event, Finished))
    assert sum(sample.seconds for sample in samples) == pytest.approx(finished.seconds, abs=0.05)
    assert finished.seconds < 0.3
    assert finished.time - events[0].time > 0.6  # two evaluations on the way
    assert finished.interface is None


def test_no_samples_are_taken_when_none_are_asked_for(tmp_path: Path) -> None:
    assert "sample" not in {event.event for event in run_one(tmp_path, experiment(interval=0.0))}


def test_a_meter_does_not_outlive_a_failed_training(tmp_path: Path) -> None:
    broken = dataclasses.replace(WORKLOAD, loss=lambda outputs, targets: outputs.sum() * torch.nan)
    described = experiment()

    def body(comm: Transport) -> None:
        recorder = Recorder(tmp_path / "rank-0.jsonl")
        try:
            train(described, build_train_state(described, broken, 0), comm, recorder)
        finally:
            assert "meter" in {thread.name for thread in threading.enumerate()}
            recorder.close()

    with pytest.raises(Exception, match="the loss is nan"):
        run_threads(1, body)
    assert "meter" not in {thread.name for thread in threading.enumerate()}


def test_interfaces_count_training_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two ranks that evaluate together; a rank's counter advances by 10 in each step, by 1000 in an evaluation."""
    sent = threading.local()

    def send(count: int) -> None:
        sent.bytes = getattr(sent, "bytes", 7) + count

    def reading() -> InterfaceCounts:
        send(0)
        return InterfaceCounts(bytes_sent=sent.bytes)

    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        if torch.is_grad_enabled():
            send(10)
        return nn.functional.cross_entropy(outputs, targets)

    def tested(outputs: Tensor, targets: Tensor) -> Tensor:
        send(1000)
        return torch.zeros(len(targets))

    monkeypatch.setattr("minga.measure.interfaces.read_interfaces", reading)
    described = experiment(interval=0.0, cluster=Cluster(nodes=2, network=Network()), strategy="ring")
    workload = dataclasses.replace(WORKLOAD, loss=loss, metrics={"tested": tested})

    def body(comm: Transport) -> int:
        recorder = Recorder(tmp_path / f"rank-{comm.rank}.jsonl")
        train(described, build_train_state(described, workload, comm.rank), comm, recorder)
        recorder.close()
        return int(sent.bytes)

    assert min(run_threads(2, body)) > 3000
    for rank in range(2):
        events = read_events(tmp_path / f"rank-{rank}.jsonl")
        finished = next(event for event in events if isinstance(event, Finished))
        assert finished.interface is not None and finished.interface["bytes_sent"] == 10 * finished.steps == 120


def test_who_measures_a_process() -> None:
    beside = experiment(cluster=Cluster(nodes=2), strategy="ps:servers=2,placement=beside")
    assert [metering_of(beside, rank).interval_seconds for rank in range(4)] == [0.05, 0.05, 0.0, 0.0]
    own = experiment(cluster=Cluster(nodes=2), strategy="ps:servers=1")
    assert [metering_of(own, rank).interval_seconds for rank in range(3)] == [0.05] * 3
    assert not metering_of(own, 0).alone_on_host
    lab = dataclasses.replace(beside, cluster=Cluster(nodes=2, network=Network(bandwidth="10mbit")))
    assert [metering_of(lab, rank).alone_on_host for rank in range(4)] == [True, True, False, False]
