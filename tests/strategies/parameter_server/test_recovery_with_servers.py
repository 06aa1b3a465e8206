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
    train_states = [build_train_state(experiment, WORKLOAD, rank) for rank in range(experiment.ranks)]
    for rank, train_state in enumerate(train_states):
        ServerState.of(train_state.replica).names = [f"node-{each} 00" for each in range(experiment.ranks)]
        if rank >= 2:
            ServerState.of(train_state.replica).log = DiskUpdateLog(tmp_path / f"server-{rank - 2}")
    return experiment.chosen_strategy, train_states


def step_of(train_state: TrainState, strategy: Strategy, comm: Transport) -> None:
    replica = train_state.replica
    replica.step += 1
    share = train_state.order.take(comm.rank, 2, train_state.batch, train_state.total_batch)
    replica.info.weight, replica.info.batch_fraction = share.weight, len(share.indices) / train_state.share_of(2)
    replica.compute_gradients(lambda: train_state.loss_of(batch_of(train_state, share.indices)))
    strategy.step(replica, comm)


def batch_of(train_state: TrainState, indices: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return indices, torch.zeros(len(indices))


def train_some(train_states: list[TrainState], strategy: Strategy, steps: int) -> None:
    """All take some steps together; then servers and workers stop as if somebody had died."""

    def body(comm: Transport) -> None:
        train_state = train_states[comm.rank]
        strategy.start(train_state.replica, comm)
        train_state.begin(strategy, comm.rank, 2)
        if comm.rank >= 2:
            assert isinstance(strategy, ParameterServer)
            part = parts_of_servers(train_state.replica, strategy.servers)[comm.rank - 2]
            server = Server(strategy, train_state.replica, comm, part)
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
            step_of(train_state, strategy, comm)

    run_threads(len(train_states), body)


def push_on_one_server_alone(train_state: TrainState, server: TrainState, rank: int) -> None:
    """What a worker leaves that dies between two of its servers."""
    from minga.strategies.parameter_server.shard import Push, Update

    replica, shard, update_log = (
        train_state.replica,
        ServerState.of(server.replica).shard,
        ServerState.of(server.replica).log,
    )
    assert shard is not None
    name = ServerState.of(replica).name_of(rank)
    push = Push(name, ServerState.of(replica).pushes + 1, replica.step + 1, 0.5)
    update = Update((push,), tuple(shard.learning_rates), (torch.ones_like(shard.gradients),), together=True)
    update_log.append(shard, update)
    assert shard.apply(update)
    update_log.applied()


def meet_all(train_states: list[TrainState], strategy: Strategy) -> list[int | None]:
    return run_threads(len(train_states), lambda comm: meet(train_states[comm.rank], strategy, comm).step)


def close(train_states: list[TrainState]) -> None:
    for train_state in train_states:
        ServerState.of(train_state.replica).log.close()


def whole(train_states: list[TrainState]) -> torch.Tensor:
    assert all(
        torch.equal(train_state.replica.parameters, train_states[0].replica.parameters) for train_state in train_states
    )
    return train_states[0].replica.parameters.clone()


@pytest.mark.parametrize("mode", ["sync", "async,damping=workers", "ssp,damping=workers"])
def test_what_one_server_alone_has_is_undone_and_its_samples_come_next(tmp_path: Path, mode: str) -> None:
    strategy, train_states = world(f"ps:servers=2,mode={mode}", tmp_path)
    train_some(train_states, strategy, 2)
    push_on_one_server_alone(train_states[1], train_states[3], 1)
    assert meet_all(train_states, strategy) == [2] * 4
    counts = whole(train_states)
    assert sorted(set(counts.tolist())) == [0.0, 1.0]
    assert int(counts.sum()) == 16
    assert {train_state.order.offset for train_state in train_states} == {16}
    assert all(train_state.order.owed == [] for train_state in train_states)
    assert {train_state.replica.step for train_state in train_states} == {2}
    close(train_states)


def test_a_worker_that_is_ahead_keeps_what_all_servers_have_and_the_other_owes(tmp_path: Path) -> None:
    strategy, train_states = world("ps:servers=2,mode=async,damping=workers", tmp_path)
    train_some(train_states, strategy, 2)
    for server in (2, 3):
        push_on_one_server_alone(train_states[0], train_states[server], 0)
    assert meet_all(train_states, strategy) == [3] * 4
    # Step 3 is in the state for worker 0; worker 1's half of it comes next.
    assert all(sum(map(len, train_state.order.owed)) == 4 for train_state in train_states)
    assert {train_state.order.offset for train_state in train_states} == {24}
    whole(train_states)
    close(train_states)


def test_a_server_that_was_started_again_restores_its_shard(tmp_path: Path) -> None:
    strategy, train_states = world("ps:servers=2", tmp_path)
    train_some(train_states, strategy, 3)
    before = torch.cat([ServerState.of(train_states[rank].replica).shard.parameters for rank in (2, 3)])  # type: ignore[union-attr]
    close(train_states[2:3])
    _, fresh = world("ps:servers=2", tmp_path)
    train_states[2] = fresh[2]
    ServerState.of(train_states[2].replica).names[2] = "node-2 11"
    assert meet_all(train_states, strategy) == [3] * 4
    assert torch.equal(whole(train_states), before)
    close(train_states)


def test_when_the_disk_is_gone_too_a_workers_parameters_are_taken(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    strategy, train_states = world("ps:servers=2", tmp_path)
    train_some(train_states, strategy, 3)
    before = train_states[0].replica.parameters.clone()
    close(train_states[2:3])
    shutil.rmtree(tmp_path / "server-0")
    _, fresh = world("ps:servers=2", tmp_path)
    train_states[2] = fresh[2]
    assert meet_all(train_states, strategy) == [3] * 4
    assert torch.equal(whole(train_states), before)
    assert "has lost its part of the parameters, on disk too" in caplog.text
    # And the next time it is believed like the others, whether anybody has pushed since or not.
    caplog.clear()
    train_some(train_states, strategy, 0)
    assert meet_all(train_states, strategy) == [3] * 4
    assert torch.equal(whole(train_states), before)
    train_some(train_states, strategy, 1)
    assert meet_all(train_states, strategy) == [4] * 4
    assert caplog.text == ""
    assert int(whole(train_states).sum()) == 32
    close(train_states)


def test_a_newcomer_takes_everything_from_servers(tmp_path: Path) -> None:
    strategy, train_states = world("ps", tmp_path)
    train_some(train_states, strategy, 2)
    _, fresh = world("ps", tmp_path)
    train_states[0] = fresh[0]
    for train_state in train_states:
        ServerState.of(train_state.replica).names[0] = "node-7 22"
    assert meet_all(train_states, strategy) == [2] * 3
    assert int(whole(train_states).sum()) == 16
    assert train_states[0].order.offset == 16
    close(train_states)


def test_nobody_has_trained_yet(tmp_path: Path) -> None:
    strategy, train_states = world("ps", tmp_path)
    outcomes = run_threads(3, lambda comm: meet(train_states[comm.rank], strategy, comm).fresh)
    assert outcomes == [True] * 3


def test_who_has_the_final_parameters_gives_them_to_all(tmp_path: Path) -> None:
    strategy, train_states = world("ps", tmp_path)
    train_some(train_states, strategy, 5)
    ServerState.of(train_states[1].replica).final = True
    train_states[0].replica.parameters.zero_()  # it was cut off in the middle of getting them
    assert meet_all(train_states, strategy) == [5] * 3
    assert int(whole(train_states).sum()) == 40
    assert all(ServerState.of(train_state.replica).final and train_state.progress >= 1 for train_state in train_states)
    close(train_states)


def test_a_push_that_comes_twice_counts_once() -> None:
    strategy = ParameterServer()
    experiment = Experiment(workload="counter", strategy=strategy, training=Training(total_batch=8))
    train_states = [build_train_state(experiment, WORKLOAD, rank) for rank in range(2)]

    def body(comm: Transport) -> Replica:
        train_state = train_states[comm.rank]
        replica = train_state.replica
        strategy.start(replica, comm)
        train_state.begin(strategy, comm.rank, 1)
        if comm.rank == 1:
            strategy.serve(replica, comm)
            return replica
        replica.compute_gradients(lambda: train_state.loss_of((torch.arange(8), torch.zeros(8))))
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
    assert ServerState.of(server).log.version == 2


def test_words_of_any_length_reach_everybody() -> None:
    said = run_threads(3, lambda comm: share_texts(comm, "é" * (1 + 70_000 * comm.rank)))
    assert [[len(word) for word in words] for words in said] == [[1, 70_001, 140_001]] * 3


@pytest.mark.parametrize("nonsense", ["no JSON", '{"step": "three"}', "[1, 2]"])
def test_a_word_that_can_not_be_is_its_ranks_fault(nonsense: str, tmp_path: Path) -> None:
    strategy, train_states = world("ps:mode=sync,servers=1", tmp_path)

    def body(comm: Transport) -> str:
        if comm.rank == 1:
            share_texts(comm, nonsense)
            return ""
        with pytest.raises(PeerWrong, match="rank 1 sent a malformed message") as raised:
            meet(train_states[comm.rank], strategy, comm)
        return str(raised.value.rank)

    assert run_threads(3, body) == ["1", "", "1"]
