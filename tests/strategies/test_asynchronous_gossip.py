"""Gossip without rounds: nobody waits for a slow rank, and averaging stays as if it were one operation."""

from __future__ import annotations

import dataclasses
import textwrap
import threading
import time
from collections import defaultdict
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from minga import Cluster, Experiment, Training, Transport, run
from minga.codecs import Plain
from minga.codecs.stream import Stream
from minga.comm.threads import run_threads
from minga.measure.event_reader import event_files, read_events
from minga.measure.events import Stepped
from minga.model.replica import Replica
from minga.strategies import Gossip
from minga.strategies.asynchronous_gossip import _Answers, _Change, _half_way
from minga.testing import run_gloo_threads, train_in_threads
from minga.testing.problems import blobs

STEPS = 25
COMPUTING_SECONDS = 0.02
ATTEMPTS = 3
"""On a busy machine something else may hold ranks up now and then; a slow neighbour would do it every time."""


def seconds_of_a_step(strategy: str, speeds: tuple[float, ...]) -> list[float]:
    """By rank; computing is sleeping here, so that ranks don't get into each other's way on few cores."""
    moments: dict[str, list[float]] = defaultdict(list)

    def slow_loss(outputs: Tensor, targets: Tensor) -> Tensor:
        moments[threading.current_thread().name].append(time.perf_counter())
        time.sleep(COMPUTING_SECONDS)
        return torch.nn.functional.cross_entropy(outputs, targets)

    experiment = Experiment(
        workload="blobs",
        strategy=strategy,
        cluster=Cluster(nodes=len(speeds), speeds=speeds),
        training=Training(steps=STEPS, evaluate_every=0),
    )
    train_in_threads(experiment, dataclasses.replace(blobs(), loss=slow_loss, test=None))
    own = [moments[f"rank-{rank}"][:STEPS] for rank in range(len(speeds))]
    return [(times[-1] - times[0]) / (len(times) - 1) for times in own]


@pytest.mark.parametrize("slow", [0, 3], ids=["one who asks", "one who answers"])
def test_a_slow_node_does_not_hold_the_others_up(slow: int) -> None:
    speeds = tuple(0.25 if rank == slow else 1.0 for rank in range(4))
    kept = []
    for _ in range(ATTEMPTS):
        usual = seconds_of_a_step("gossip:algorithm=asynchronous", (1.0,) * 4)
        beside_slow = seconds_of_a_step("gossip:algorithm=asynchronous", speeds)
        assert beside_slow[slow] > 3 * min(beside_slow)  # it is slow indeed
        kept.append(min(usual[rank] / beside_slow[rank] for rank in range(4) if rank != slow))
        if kept[-1] >= 0.9:
            return
    raise AssertionError(f"the others kept {kept} of their speed")


def test_in_rounds_a_slow_node_does_hold_them_up() -> None:
    usual = seconds_of_a_step("gossip:graph=ring", (1.0,) * 4)
    beside_slow = seconds_of_a_step("gossip:graph=ring", (1.0, 1.0, 1.0, 0.25))
    assert usual[0] / beside_slow[0] < 0.5


WORKLOAD = """
    import time, torch
    from torch import nn
    from torch.utils.data import TensorDataset
    from minga import Workload

    def loss(outputs, targets):
        time.sleep(0.02)
        return nn.functional.cross_entropy(outputs, targets)

    data = TensorDataset(torch.randn(400, 8), torch.arange(400) % 2)
    workload = Workload(name="sleepy", model=lambda: nn.Linear(8, 2), train=data, loss=loss, batch=4)
"""


@pytest.mark.slow
def test_a_slow_process_does_not_hold_the_others_up(tmp_path: Path) -> None:
    (tmp_path / "sleepy.py").write_text(textwrap.dedent(WORKLOAD))

    def steps_per_second(speeds: tuple[float, ...]) -> list[float]:
        summary = run(
            Experiment(
                workload=f"{tmp_path / 'sleepy.py'}:workload",
                strategy="gossip:algorithm=asynchronous",
                cluster=Cluster(nodes=4, speeds=speeds),
                training=Training(steps=STEPS),
                runs=str(tmp_path),
            )
        )
        rates = []
        for path in event_files(Path(summary.run)):
            times = [event.time for event in read_events(path) if isinstance(event, Stepped)]
            rates.append((len(times) - 1) / (times[-1] - times[0]))
        return rates

    kept = []
    for _ in range(ATTEMPTS):
        usual, beside_slow = steps_per_second((1, 1, 1, 1)), steps_per_second((1, 1, 1, 0.25))
        assert beside_slow[3] < 0.4 * max(beside_slow)
        kept.append(min(now / before for now, before in zip(beside_slow[:3], usual[:3], strict=True)))
        if kept[-1] >= 0.9:
            return
    raise AssertionError(f"the others kept {kept} of their speed")


def gather(comm: Transport, pause: float = 0.0) -> tuple[Tensor, Tensor, int]:
    """Meetings without learning: the largest value that was ever seen, the end, and how many meetings there were."""
    model = nn.Linear(30, 1, bias=False).double()
    replica = Replica(model, torch.optim.SGD(model.parameters(), lr=0.0))
    strategy = Gossip(algorithm="asynchronous", graph="random")
    replica.parameters.zero_()
    replica.progress.begin(0, comm.size)
    strategy.start(replica, comm)
    begin = torch.linspace(-1, 1, comm.size, dtype=torch.float64)[comm.rank]
    replica.parameters.fill_(begin)
    largest = begin.abs()
    for _ in range(30):
        replica.step += 1
        time.sleep(pause if comm.rank == 1 else 0.001)
        strategy.step(replica, comm)
        largest = torch.maximum(largest, replica.parameters.abs().max())
    strategy.finish(replica, comm)
    return largest, replica.parameters, replica.notes["meetings"]


@pytest.mark.parametrize("run_on", [run_threads, run_gloo_threads])
@pytest.mark.parametrize("size", [2, 3, 9])
def test_meetings_keep_the_mean_and_pull_nobody_beyond_the_others(size: int, run_on: object) -> None:
    results = run_on(size, lambda comm: gather(comm, pause=0.01))  # type: ignore[operator]
    for largest, end, _ in results:
        assert float(largest) <= 1 + 1e-12
        assert float(end.abs().max()) < 1e-12  # the mean of what they began with
    asked = sum(meetings for *_, meetings in results[0::2])
    assert asked == sum(meetings for *_, meetings in results[1::2]) > 0


def ask_between_two_steps_of_a_slow_owner() -> float:
    """Where an owner is after its step that was at 1, while two others, both at -1, asked it several times."""
    model = nn.Linear(1, 1, bias=False).double()
    owner = Replica(model, torch.optim.SGD(model.parameters(), lr=0.0))
    owner.parameters.fill_(1)
    owner.progress.begin(0, 3)
    codec, stream = Plain(), Stream.of(owner.parameters)
    answers = _Answers([0, 2], codec, stream, owner.parameters.clone(), torch.zeros(3))
    for rank in (0, 2):
        other = torch.full_like(owner.parameters, -1)
        for step in range(1, 4):
            mine = answers._current().delta
            change = _half_way(codec, stream, mine, other, mine)
            answers._owe(_Change(change, torch.tensor([float(step * (rank == each)) for each in range(3)])))
            other = other - change
    answers.take_in(owner)
    assert owner.progress.merged_steps == [3, 0, 3]
    return float(owner.parameters)


def test_who_is_asked_often_between_two_steps_is_not_pulled_beyond_the_others() -> None:
    assert -1 < ask_between_two_steps_of_a_slow_owner() < 0


def test_answers_from_old_parameters_would_pull_beyond(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_Answers, "_current", lambda self: _Change(*(each.clone() for each in self._published[:2])))
    assert ask_between_two_steps_of_a_slow_owner() < -1
