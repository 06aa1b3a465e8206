"""Runs that go on when ranks are killed, stopped or come back: really killed, and every sample counted in the model."""

from __future__ import annotations

import contextlib
import os
import signal
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from safetensors.torch import load_file

from minga import Cluster, Experiment, Summary, Training, run
from minga.engines.joining import Invitation, join_run
from minga.errors import RankFailed, RunError
from minga.launch.listening import Listening
from minga.measure.event_reader import event_files, read_events
from minga.measure.events import RankRecovered, Stepped
from minga.report.dataset.sources import find_runs
from minga.runs.experiment import Checkpoints
from several_machines import Part

pytestmark = pytest.mark.chaos

SAMPLES, TOTAL_BATCH, EPOCHS = 600, 12, 3
STEPS = EPOCHS * SAMPLES // TOTAL_BATCH

# Its only parameters are a counter for each sample: whatever happens, each must be at EPOCHS in the end.
COUNTER = f"""
import os
import time
from functools import partial
from pathlib import Path
import torch
from torch import nn
import random
from torch.utils.data import IterableDataset, TensorDataset
from minga import Workload


class Counter(nn.Module):
    def __init__(self):
        super().__init__()
        self.counts = nn.Embedding({SAMPLES}, 1, dtype=torch.float64)
        nn.init.zeros_(self.counts.weight)

    def forward(self, inputs):
        hanging = Path(__file__).with_name("hanging")
        if hanging.exists() and hanging.read_text() == str(os.getpid()):
            time.sleep(1000)
        time.sleep(0.2 if Path(__file__).with_name("slowly").exists() else 0.02)
        return self.counts(inputs)


class Stream(IterableDataset):
    '''Nobody knows its length before its end, and each epoch has another order.'''

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __iter__(self):
        for number in random.Random(self.epoch).sample(range({SAMPLES}), {SAMPLES}):
            yield number, 0.0


class Normalised(Counter):
    '''Ranks meet in forward and in backward, for sums that change nothing.'''

    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(1, dtype=torch.float64)

    def forward(self, inputs):
        counts = super().forward(inputs)
        return counts + 0 * self.norm(counts)


def made(train, model=Counter):
    return Workload(
        name="counter",
        model=model,
        train=train,
        loss=lambda outputs, targets: -outputs.mean(),
        optimizer=partial(torch.optim.SGD, lr={float(TOTAL_BATCH)}),
        epochs={EPOCHS},
    )


dying = Path(__file__).with_name("dying")
if dying.exists():  # as many processes as it says die before they have said a word
    try:
        dying.rename(mine := dying.with_name(f"dying-{os.getpid()}"))  # one at a time
    except FileNotFoundError:
        pass
    else:
        left = int(mine.read_text()) - 1
        if left:
            mine.write_text(str(left))
            mine.rename(dying)
        os.kill(os.getpid(), 9)

workload = made(TensorDataset(torch.arange({SAMPLES}), torch.zeros({SAMPLES})))
streamed = made(Stream())
normalised = made(workload.train, Normalised)
"""


class Running:
    """A run in a thread of its own, to be disturbed from outside."""

    def __init__(
        self,
        tmp_path: Path,
        strategy: str,
        nodes: int,
        *,
        data: str = "workload",
        listening: Listening | None = None,
        checkpoints: Checkpoints | None = None,
        **cluster: Any,
    ) -> None:
        file = tmp_path / "counter.py"
        file.write_text(textwrap.dedent(COUNTER))
        self._slowly = tmp_path / "slowly"
        self.hanging = tmp_path / "hanging"
        self._runs = tmp_path / "runs"
        self._experiment = Experiment(
            workload=f"{file}:{data}",
            strategy=strategy,  # type: ignore[arg-type]
            cluster=Cluster(nodes=nodes, transport="tcp", timeout_seconds=30, **cluster),
            training=Training(total_batch=TOTAL_BATCH),
            checkpoints=checkpoints or Checkpoints(),
            runs=str(self._runs),
        )
        self._listening = listening
        self.summary: Summary | None = None
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.summary = run(self._experiment, listening=self._listening)
        except BaseException as error:
            self.error = error

    @property
    def directory(self) -> Path:
        return next(self._runs.iterdir())

    def events(self, kind: str, rank: int | None = None) -> list[dict[str, Any]]:
        if not self._runs.exists() or not any(self._runs.iterdir()):
            return []
        files = [path for path in event_files(self.directory) if rank is None or path.stem == f"rank-{rank}"]
        return [vars(event) for path in files for event in read_events(path) if event.event == kind]

    def wait_for(self, what: Callable[[], Any], seconds: float = 40.0) -> Any:
        deadline = time.monotonic() + seconds
        while not (found := what()):
            assert time.monotonic() < deadline, "it did not come to that"
            assert self._thread.is_alive() or what(), f"the run has ended before: {self.error}"
            time.sleep(0.02)
        return found

    def wait_for_step(self, step: int) -> None:
        self.wait_for(lambda: any(event["step"] >= step for event in self.events("step")))

    @contextlib.contextmanager
    def slowly(self) -> Iterator[None]:
        """Long steps, so that whatever is to happen now happens before the run is done, on a busy machine too."""
        self._slowly.touch()
        try:
            yield
        finally:
            self._slowly.unlink()

    def pid(self, rank: int) -> int:
        return int(self.wait_for(lambda: self.events("started", rank))[0]["pid"])

    def coordinator(self) -> int:
        lock = str(self.directory / "coordinator.json.lock")
        for process in psutil.process_iter():
            try:
                links = [path.readlink() for path in Path(f"/proc/{process.pid}/fd").iterdir()]
            except OSError:
                continue
            if Path(lock) in links:
                return process.pid
        raise AssertionError("there is no coordinator")

    def end(self, seconds: float = 60.0) -> Summary:
        self._thread.join(seconds)
        assert not self._thread.is_alive(), "the run hangs"
        if self.error is not None:
            raise self.error
        assert self.summary is not None
        return self.summary

    def counts(self) -> torch.Tensor:
        return load_file(f"{self.end().run}/model.safetensors")["counts.weight"].reshape(-1)


def recovery_seconds(running: Running, killed: float) -> float:
    """From a moment (of the wall clock's monotonic kind) to the first step of a survivor after it has regrouped."""
    found = []
    for path in event_files(running.directory):
        regrouped = None
        for event in read_events(path):
            if isinstance(event, RankRecovered) and event.time > killed:
                regrouped = event
            elif isinstance(event, Stepped) and regrouped is not None:
                found.append(event.time - killed)
                break
    return max(found)


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
    assert [labelled.run.lost for labelled in found.runs] == [[rank]]
    assert found.notes == [f"{running.directory.name}: rank {rank} got lost on the way; the others went on without it."]
    assert found.runs[0].run.training_losses[-1].epoch == EPOCHS


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
    listening = Listening.at("127.0.0.2", here=3, tls=None, when_listening=lambda *place: where.append(place))
    running = Running(tmp_path, "ring", nodes=3, data=data, listening=listening)
    running.wait_for_step(15)
    with running.slowly():
        os.kill(running.pid(1), signal.SIGKILL)
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
    listening = Listening.at("127.0.0.2", here=2, tls=None, when_listening=lambda *place: where.append(place))
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


SLOWER = ("local_sgd:period=8,overlap=4", "gossip", "hierarchical:site_size=2,across=(local_sgd:period=8)")


@pytest.mark.parametrize("strategy", ["adaptive", *(pytest.param(each, marks=pytest.mark.slow) for each in SLOWER)])
def test_strategies_with_local_steps_go_on_too(tmp_path: Path, strategy: str) -> None:
    running = Running(tmp_path, strategy, nodes=3)
    running.wait_for_step(40)
    os.kill(running.pid(0), signal.SIGKILL)
    summary = running.end()
    assert summary.steps >= STEPS
    counts = running.counts()
    assert bool((counts > 0).all())
    if "local_sgd" in strategy:
        # What the one that all go on from had learnt alone counts for the others' samples too, and those come again:
        # nothing counts less than once.
        assert float(counts.min()) > EPOCHS - 1e-6


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
