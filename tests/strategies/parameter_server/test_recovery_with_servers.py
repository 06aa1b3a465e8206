"""Ranks that form anew around servers, as threads: who takes what from whom, and which samples come again."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from minga import Cluster, Experiment, Training, Workload
from minga.comm.threads import run_threads
from minga.comm.transport import Transport
from minga.errors import PeerWrong
from minga.model.replica import Replica
from minga.strategies import ParameterServer, Strategy
from minga.strategies.parameter_server.disk_log import DiskUpdateLog
from minga.strategies.parameter_server.recovery import meet, share_texts
from minga.strategies.parameter_server.server import Server
from minga.strategies.parameter_server.state import ServerState, parts_of_servers
from minga.training.train_state import TrainState, build_train_state

SAMPLES = 40


class Counter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.counts = nn.Embedding(SAMPLES, 1, dtype=torch.float64)
        nn.init.zeros_(self.counts.weight)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.counts(inputs)


WORKLOAD = Workload(
    name="counter",
    model=Counter,
    train=TensorDataset(torch.arange(SAMPLES), torch.zeros(SAMPLES)),
    loss=lambda outputs, targets: -outputs.mean(),
    optimizer=partial(torch.optim.SGD, lr=8.0),
    epochs=1,
)


def world(strategy: str, tmp_path: Path) -> tuple[Strategy, list[TrainState]]:
    experiment = Experiment(
        workload="counter",
        strategy=strategy,  # type: ignore[arg-type]
        cluster=Cluster(nodes=2),
        training=Training(total_batch=8),
    )
    trainees = [build_train_state(experiment, WORKLOAD, rank) for rank in range(experiment.ranks)]
    for rank, trainee in enumerate(trainees):
        ServerState.of(trainee.replica).names = [f"node-{each} 00" for each in range(experiment.ranks)]
        if rank >= 2:
            ServerState.of(trainee.replica).log = DiskUpdateLog(tmp_path / f"server-{rank - 2}")
    return experiment.chosen_strategy, trainees


def step_of(trainee: TrainState, strategy: Strategy, comm: Transport) -> None:
    replica = trainee.replica
    replica.step += 1
    share = trainee.order.take(comm.rank, 2, trainee.batch, trainee.total_batch)
    replica.info.weight, replica.info.batch_fraction = share.weight, len(share.indices) / trainee.share_of(2)
    replica.compute_gradients(lambda: trainee.loss_of(trainee_batch(trainee, share.indices)))
    strategy.step(replica, comm)


def trainee_batch(trainee: TrainState, indices: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return indices, torch.zeros(len(indices))


def train_some(trainees: list[TrainState], strategy: Strategy, steps: int) -> None:
    """All take some steps together; then servers and workers stop as if somebody had died."""

    def body(comm: Transport) -> None:
        trainee = trainees[comm.rank]
        strategy.start(trainee.replica, comm)
        trainee.begin(strategy, comm.rank, 2)
        if comm.rank >= 2:
            assert isinstance(strategy, ParameterServer)
            part = parts_of_servers(trainee.replica, strategy.servers)[comm.rank - 2]
            server = Server(strategy, trainee.replica, comm, part)
            server._log.begin(server._shard, server._period)
            for worker in range(2):
                server._expect(worker)
            for _ in range(2 * steps):
                assert server._take_in(server._next_header())
                server._answer()
            for reply in server._replies.values():
                reply.wait()
            for coming in server._coming.values():
                coming.cancel()
            return
        for _ in range(steps):
            step_of(trainee, strategy, comm)

    run_threads(len(trainees), body)


def push_on_one_server_alone(trainee: TrainState, server: TrainState, rank: int) -> None:
    """What a worker leaves that dies between two of its servers."""
    from minga.strategies.parameter_server.shard import Push, Update

    replica, shard, ledger = trainee.replica, ServerState.of(server.replica).shard, ServerState.of(server.replica).log
    assert shard is not None
    name = ServerState.of(replica).name_of(rank)
    push = Push(name, ServerState.of(replica).pushes + 1, replica.step + 1, 0.5)
    update = Update((push,), tuple(shard.learning_rates), (torch.ones_like(shard.gradients),), together=True)
    ledger.append(shard, update)
    assert shard.apply(update)
    ledger.applied()


def meet_all(trainees: list[TrainState], strategy: Strategy) -> list[int | None]:
    return run_threads(len(trainees), lambda comm: meet(trainees[comm.rank], strategy, comm).step)


def close(trainees: list[TrainState]) -> None:
    for trainee in trainees:
        ServerState.of(trainee.replica).log.close()


def whole(trainees: list[TrainState]) -> torch.Tensor:
    assert all(torch.equal(trainee.replica.parameters, trainees[0].replica.parameters) for trainee in trainees)
    return trainees[0].replica.parameters.clone()


@pytest.mark.parametrize("mode", ["sync", "async,damping=workers", "ssp,damping=workers"])
def test_what_one_server_alone_has_is_undone_and_its_samples_come_next(tmp_path: Path, mode: str) -> None:
    strategy, trainees = world(f"ps:servers=2,mode={mode}", tmp_path)
    train_some(trainees, strategy, 2)
    push_on_one_server_alone(trainees[1], trainees[3], 1)
    assert meet_all(trainees, strategy) == [2] * 4
    counts = whole(trainees)
    assert sorted(set(counts.tolist())) == [0.0, 1.0]
    assert int(counts.sum()) == 16
    assert {trainee.order.offset for trainee in trainees} == {16}
    assert all(trainee.order.owed == [] for trainee in trainees)
    assert {trainee.replica.step for trainee in trainees} == {2}
    close(trainees)


def test_a_worker_that_is_ahead_keeps_what_all_servers_have_and_the_other_owes(tmp_path: Path) -> None:
    strategy, trainees = world("ps:servers=2,mode=async,damping=workers", tmp_path)
    train_some(trainees, strategy, 2)
    for server in (2, 3):
        push_on_one_server_alone(trainees[0], trainees[server], 0)
    assert meet_all(trainees, strategy) == [3] * 4
    # Step 3 is in the state for worker 0; worker 1's half of it comes next.
    assert all(sum(map(len, trainee.order.owed)) == 4 for trainee in trainees)
    assert {trainee.order.offset for trainee in trainees} == {24}
    whole(trainees)
    close(trainees)


def test_a_server_that_was_started_again_restores_its_shard(tmp_path: Path) -> None:
    strategy, trainees = world("ps:servers=2", tmp_path)
    train_some(trainees, strategy, 3)
    before = torch.cat([ServerState.of(trainees[rank].replica).shard.parameters for rank in (2, 3)])  # type: ignore[union-attr]
    close(trainees[2:3])
    _, fresh = world("ps:servers=2", tmp_path)
    trainees[2] = fresh[2]
    ServerState.of(trainees[2].replica).names[2] = "node-2 11"
    assert meet_all(trainees, strategy) == [3] * 4
    assert torch.equal(whole(trainees), before)
    close(trainees)


def test_when_the_disk_is_gone_too_a_workers_parameters_are_taken(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    strategy, trainees = world("ps:servers=2", tmp_path)
    train_some(trainees, strategy, 3)
    before = trainees[0].replica.parameters.clone()
    close(trainees[2:3])
    shutil.rmtree(tmp_path / "server-0")
    _, fresh = world("ps:servers=2", tmp_path)
    trainees[2] = fresh[2]
    assert meet_all(trainees, strategy) == [3] * 4
    assert torch.equal(whole(trainees), before)
    assert "has lost its part of the parameters, on disk too" in caplog.text
    # And the next time it is believed like the others, whether anybody has pushed since or not.
    caplog.clear()
    train_some(trainees, strategy, 0)
    assert meet_all(trainees, strategy) == [3] * 4
    assert torch.equal(whole(trainees), before)
    train_some(trainees, strategy, 1)
    assert meet_all(trainees, strategy) == [4] * 4
    assert caplog.text == ""
    assert int(whole(trainees).sum()) == 32
    close(trainees)


def test_a_newcomer_takes_everything_from_servers(tmp_path: Path) -> None:
    strategy, trainees = world("ps", tmp_path)
    train_some(trainees, strategy, 2)
    _, fresh = world("ps", tmp_path)
    trainees[0] = fresh[0]
    for trainee in trainees:
        ServerState.of(trainee.replica).names[0] = "node-7 22"
    assert meet_all(trainees, strategy) == [2] * 3
    assert int(whole(trainees).sum()) == 16
    assert trainees[0].order.offset == 16
    close(trainees)


def test_nobody_has_trained_yet(tmp_path: Path) -> None:
    strategy, trainees = world("ps", tmp_path)
    outcomes = run_threads(3, lambda comm: meet(trainees[comm.rank], strategy, comm).fresh)
    assert outcomes == [True] * 3


def test_who_has_the_final_parameters_gives_them_to_all(tmp_path: Path) -> None:
    strategy, trainees = world("ps", tmp_path)
    train_some(trainees, strategy, 5)
    ServerState.of(trainees[1].replica).final = True
    trainees[0].replica.parameters.zero_()  # it was cut off in the middle of getting them
    assert meet_all(trainees, strategy) == [5] * 3
    assert int(whole(trainees).sum()) == 40
    assert all(ServerState.of(trainee.replica).final and trainee.progress >= 1 for trainee in trainees)
    close(trainees)


def test_a_push_that_comes_twice_counts_once() -> None:
    strategy = ParameterServer()
    experiment = Experiment(workload="counter", strategy=strategy, training=Training(total_batch=8))
    trainees = [build_train_state(experiment, WORKLOAD, rank) for rank in range(2)]

    def body(comm: Transport) -> Replica:
        trainee = trainees[comm.rank]
        replica = trainee.replica
        strategy.start(replica, comm)
        trainee.begin(strategy, comm.rank, 1)
        if comm.rank == 1:
            strategy.serve(replica, comm)
            return replica
        replica.compute_gradients(lambda: trainee.loss_of((torch.arange(8), torch.zeros(8))))
        strategy.step(replica, comm)
        once = replica.parameters.clone()
        assert int(once.sum()) == 8
        ServerState.of(replica).pushes -= 1  # the same again, as after an answer that was lost
        strategy.step(replica, comm)
        assert torch.equal(replica.parameters, once)
        strategy.step(replica, comm)
        assert not torch.equal(replica.parameters, once)
        strategy.finish(replica, comm)
        return replica

    server = run_threads(2, body)[1]
    assert server.notes["refused"] == 1
    assert server.ledger.version == 2


def test_words_of_any_length_reach_everybody() -> None:
    said = run_threads(3, lambda comm: share_texts(comm, "é" * (1 + 70_000 * comm.rank)))
    assert [[len(word) for word in words] for words in said] == [[1, 70_001, 140_001]] * 3


@pytest.mark.parametrize("nonsense", ["no JSON", '{"step": "three"}', "[1, 2]"])
def test_a_word_that_can_not_be_is_its_ranks_fault(nonsense: str, tmp_path: Path) -> None:
    strategy, trainees = world("ps:mode=sync,servers=1", tmp_path)

    def body(comm: Transport) -> str:
        if comm.rank == 1:
            share_texts(comm, nonsense)
            return ""
        with pytest.raises(PeerWrong, match="rank 1 sent a malformed message") as raised:
            meet(trainees[comm.rank], strategy, comm)
        return str(raised.value.rank)

    assert run_threads(3, body) == ["1", "", "1"]
