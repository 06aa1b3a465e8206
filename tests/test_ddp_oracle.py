"""Torch's own DistributedDataParallel as an independent oracle."""

from __future__ import annotations

import multiprocessing
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from minga import Cluster, Experiment, Training
from minga.data.order import Order
from minga.testing import train_in_threads
from minga.testing.problems import adam, blobs, sgd_with_momentum

NODES, BATCH, STEPS = 4, 8, 100
OPTIMIZERS = {"sgd": sgd_with_momentum, "adam": adam}


def ddp_rank(rank: int, store_file: str, optimizer_name: str, result: Connection) -> None:
    """The textbook loop on the same samples."""
    torch.set_num_threads(1)
    store = dist.FileStore(store_file, NODES)  # type: ignore[attr-defined]
    dist.init_process_group("gloo", store=store, rank=rank, world_size=NODES, timeout=timedelta(seconds=60))
    workload = blobs(samples=160, optimizer=OPTIMIZERS[optimizer_name])
    torch.manual_seed(0)
    model = workload.model()
    parallel = DistributedDataParallel(model)
    optimizer = workload.optimizer(model.parameters())
    order = Order(160, seed=0)
    for _ in range(STEPS):
        inputs, targets = workload.train[order.take(rank, NODES, BATCH).indices]
        optimizer.zero_grad()
        workload.loss(parallel(inputs), targets).backward()
        optimizer.step()
    if rank == 0:
        result.send([tensor.detach().reshape(-1).tolist() for tensor in model.parameters()])
    dist.barrier()
    dist.destroy_process_group()


@pytest.fixture(scope="module", params=["sgd", "adam"])
def oracle(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, torch.Tensor]:
    """The optimizer's name and DDP's parameters after 100 steps."""
    store_file = tmp_path_factory.mktemp("ddp") / "store"
    context = multiprocessing.get_context("spawn")
    receiving, sending = context.Pipe(duplex=False)
    processes: list[Any] = [
        context.Process(target=ddp_rank, args=(rank, str(store_file), request.param, sending)) for rank in range(NODES)
    ]
    for process in processes:
        process.start()
    assert receiving.poll(100), "DDP did not finish"
    flat = torch.tensor(sum(receiving.recv(), []), dtype=torch.float64)
    for process in processes:
        process.join(30)
    receiving.close()
    sending.close()
    assert Path(store_file).parent.exists()
    return request.param, flat


@pytest.mark.parametrize(
    "strategy",
    [
        "native",
        "ring",
        "tree",
        "halving_doubling",
        "mesh",
        "two_level:group_size=2",
        "ps:mode=sync",
        "ps:mode=sync,servers=2",
        "ps:mode=sync,servers=3",
        "ps:mode=ssp,staleness=0",
    ],
)
def test_every_exact_algorithm_equals_ddp(oracle: tuple[str, torch.Tensor], strategy: str) -> None:
    name, expected = oracle
    experiment = Experiment(
        workload="blobs", strategy=strategy, cluster=Cluster(nodes=NODES), training=Training(steps=STEPS, batch=BATCH)
    )
    replica = train_in_threads(experiment, blobs(samples=160, optimizer=OPTIMIZERS[name]))[0]
    assert (replica.parameters - expected).abs().max() < 1e-12
