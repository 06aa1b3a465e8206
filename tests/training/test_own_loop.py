"""A training loop of one's own, on threads: the details that the examples don't show."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset, WeightedRandomSampler

from minga.comm.threads import ThreadWorld, run_threads
from minga.comm.transport import Transport
from minga.errors import UsageError, WorkloadError
from minga.strategies import AllReduce, LocalSGD, ParameterServer, Strategy
from minga.training.own_loop import OwnLoop

DATA = TensorDataset(torch.arange(22, dtype=torch.float64).unsqueeze(1) / 10, torch.arange(22))


def train(
    comm: Transport, strategy: Strategy, *, batch: int, dataset: Any = DATA, **loader_options: Any
) -> tuple[list[int], torch.Tensor, int]:
    """The samples that this rank saw in two epochs, the parameters, the number of steps."""
    model = nn.Linear(1, 1).double()
    with torch.no_grad():
        model.weight.fill_(0.5), model.bias.fill_(0.1)
    run = OwnLoop(strategy, comm)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    loader = DataLoader(dataset, batch_size=batch, **loader_options)
    _, _, shared = run.prepare(model, optimizer, loader)
    seen: list[int] = []
    for _ in range(2):
        for inputs, numbers in shared:
            seen += numbers.tolist()
            run.step((model(inputs) - 1).square().mean())
    run.finish()
    assert run._replica is not None
    return seen, run._replica.parameters.clone(), run._replica.step


def test_every_sample_once_per_epoch_and_equal_to_one_worker_with_the_whole_batch() -> None:
    # 3 workers x 4 = 12: the second batch has 10 samples.
    together = run_threads(3, lambda comm: train(comm, AllReduce(collective="ring"), batch=4, shuffle=True))
    alone = run_threads(1, lambda comm: train(comm, AllReduce(), batch=12, shuffle=True))
    assert sorted(number for seen, _, _ in together for number in seen) == sorted([*range(22), *range(22)])
    torch.testing.assert_close(together[0][1], alone[0][1], rtol=0, atol=1e-12)


def test_a_worker_without_samples_in_the_last_batch_takes_part() -> None:
    # 5 workers x 4 = 20: the second batch has 2 samples, for two of the workers.
    together = run_threads(5, lambda comm: train(comm, AllReduce(collective="ring"), batch=4))
    assert [steps for _, _, steps in together] == [4] * 5
    alone = run_threads(1, lambda comm: train(comm, AllReduce(), batch=20))
    torch.testing.assert_close(together[0][1], alone[0][1], rtol=0, atol=1e-12)


def test_a_batch_that_is_no_number_leaves_no_trace_in_statistics() -> None:
    inputs = torch.arange(24, dtype=torch.float64).unsqueeze(1) / 10
    inputs[13] = torch.nan

    def body(comm: Transport) -> list[torch.Tensor]:
        model = nn.Sequential(nn.Linear(1, 3), nn.BatchNorm1d(3), nn.Linear(3, 1)).double()
        run = OwnLoop(AllReduce(collective="ring"), comm)
        loader = DataLoader(TensorDataset(inputs), batch_size=4)
        _, _, shared = run.prepare(model, torch.optim.SGD(model.parameters(), lr=0.01), loader)
        for (samples,) in shared:
            run.step((model(samples) - 1).square().mean())
        run.finish()
        return [*model.buffers(), *model.parameters()]

    for tensors in run_threads(2, body):
        assert all(bool(torch.isfinite(tensor).all()) for tensor in tensors)


def test_dropping_the_last_batch() -> None:
    together = run_threads(3, lambda comm: train(comm, AllReduce(), batch=4, drop_last=True))
    assert [(len(seen), steps) for seen, _, steps in together] == [(8, 2)] * 3


def test_reader_processes() -> None:
    seen, _, steps = run_threads(1, lambda comm: train(comm, AllReduce(), batch=5, num_workers=1))[0]
    assert (seen, steps) == ([*range(22), *range(22)], 10)


def test_a_server_stays_in_prepare_until_all_are_done() -> None:
    def body(comm: Transport) -> str:
        try:
            train(comm, ParameterServer(), batch=4)
        except SystemExit as leaving:
            assert leaving.code == 0
            return "server"
        return "worker"

    assert run_threads(3, body) == ["worker", "worker", "server"]


def alone(loader: DataLoader[Any]) -> tuple[OwnLoop, nn.Module, torch.optim.Optimizer]:
    model = nn.Linear(1, 1).double()
    run = OwnLoop(AllReduce(), ThreadWorld(1).transport(0))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    run.prepare(model, optimizer, loader)
    return run, model, optimizer


class Stream(IterableDataset[Any]):
    """The same samples, without an index and without telling how many there are."""

    def __iter__(self) -> Any:
        return iter([DATA[index] for index in range(len(DATA))])


@pytest.mark.parametrize("drop_last", [False, True])
def test_a_loader_over_a_stream_is_shared_too(drop_last: bool) -> None:
    def body(comm: Transport, **options: Any) -> Any:
        return train(comm, AllReduce(collective="ring"), batch=4, drop_last=drop_last, **options)

    streams = run_threads(3, lambda comm: body(comm, dataset=Stream()))
    indexed = run_threads(3, body)
    for (seen, parameters, steps), (others, wanted, in_steps) in zip(streams, indexed, strict=True):
        assert (seen, steps) == (others, in_steps)
        assert torch.equal(parameters, wanted)


@pytest.mark.parametrize(
    ("loader", "message"),
    [
        (lambda: DataLoader(Stream(), batch_size=2, num_workers=1), "a stream, .* use num_workers=0, not 1"),
        (
            lambda: DataLoader(DATA, batch_size=2, sampler=WeightedRandomSampler([1.0] * 22, 22)),
            "WeightedRandomSampler",
        ),
        (lambda: DataLoader(DATA, batch_sampler=[[0, 1], [2]]), "has no batch_size, or batches of its own"),
    ],
)
def test_loaders_that_can_not_be_shared(loader: Callable[[], DataLoader[Any]], message: str) -> None:
    with pytest.raises(WorkloadError, match=message):
        alone(loader())


def test_a_step_of_the_optimizer_besides_is_refused() -> None:
    run, model, optimizer = alone(DataLoader(DATA, batch_size=2))
    run.step(model(torch.ones(1, 1, dtype=torch.float64)).sum())
    with pytest.raises(UsageError, match=r"remove optimizer\.step"):
        optimizer.step()
    run.finish()


@pytest.mark.parametrize(
    ("strategy", "said"),
    [
        (LocalSGD(), r"remove loss.backward\(\); .*run.step\(\(first \+ second\) / 2\)"),
        (AllReduce(), r"in several pieces.*remove loss.backward\(\), which run.step\(loss\) does"),
    ],
    ids=["as a whole", "in buckets"],
)
def test_gradients_that_are_there_before_a_step_are_refused(strategy: Strategy, said: str) -> None:
    """Added up over several batches, as in every tutorial: they would be lost in silence."""
    model = nn.Linear(1, 1).double()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    run = OwnLoop(strategy, ThreadWorld(1).transport(0))
    _, _, shared = run.prepare(model, optimizer, DataLoader(DATA, batch_size=11))
    first, second = (inputs for inputs, _ in shared)
    optimizer.zero_grad()
    run.step(model(first).mean())
    optimizer.zero_grad(set_to_none=False)  # of a loop as it was before: harmless
    run.step(model(first).mean())
    with pytest.raises((UsageError, WorkloadError), match=said):
        (model(first).mean() / 2).backward()
        run.step(model(second).mean() / 2)
    run.close()


def test_steps_in_the_wrong_order() -> None:
    run = OwnLoop(AllReduce(), ThreadWorld(1).transport(0))
    with pytest.raises(UsageError, match=r"run\.prepare"):
        run.step(torch.zeros(1))
    prepared, model, optimizer = alone(DataLoader(DATA, batch_size=2))
    with pytest.raises(UsageError, match="twice"):
        prepared.prepare(model, optimizer, DataLoader(DATA, batch_size=2))
    prepared.finish()
    with pytest.raises(UsageError, match="finish was called already"):
        prepared.step(torch.zeros(1))


SCRIPT = Path(__file__).parents[2] / "examples" / "own_loop.py"


def test_whoever_sets_the_variables_of_torchrun_is_a_launcher(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    given = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    ranks = [
        subprocess.Popen(
            [sys.executable, str(SCRIPT), "--epochs", "3"],
            env={**os.environ, **given, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    printed = [process.communicate(timeout=120)[0] for process in ranks]
    for rank, text in enumerate(printed):
        assert f"rank {rank} of 2: accuracy 0." in text


@pytest.mark.slow
def test_torchrun_is_a_launcher_too(tmp_path: Path) -> None:
    command = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(SCRIPT), "--epochs", "3"]
    done = subprocess.run([sys.executable, *command], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    for rank in range(2):
        assert f"rank {rank} of 2: accuracy 0." in done.stdout
