"""Torch's own DistributedDataParallel as an independent oracle."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, NoReturn

import pytest
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from minga import Cluster, Experiment, Training
from minga.data.order import Order
from minga.launch.processes import Job, processes
from minga.testing import train_in_threads
from minga.testing.problems import adam, blobs, sgd_with_momentum

NODES, BATCH, STEPS = 4, 8, 100
OPTIMIZERS = {"sgd": sgd_with_momentum, "adam": adam}


def ddp_rank(arguments: Mapping[str, Any]) -> NoReturn:
    """The textbook loop on the same samples, in a process of its own."""
    rank, folder = arguments["rank"], Path(arguments["folder"])
    torch.set_num_threads(1)
    store = dist.FileStore(str(folder / "store"), NODES)  # type: ignore[attr-defined]
    dist.init_process_group("gloo", store=store, rank=rank, world_size=NODES, timeout=timedelta(seconds=60))
    for name, make_optimizer in OPTIMIZERS.items():
        workload = blobs(samples=160, optimizer=make_optimizer)
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
            flat = [value for tensor in model.parameters() for value in tensor.detach().reshape(-1).tolist()]
            (folder / f"{name}.json").write_text(json.dumps(flat))
    dist.barrier()
    os._exit(0)  # gloo does not always come back from giving its group up


@pytest.fixture(scope="module")
def oracle(tmp_path_factory: pytest.TempPathFactory) -> dict[str, torch.Tensor]:
    """DDP's parameters after 100 steps, by optimizer."""
    folder = tmp_path_factory.mktemp("ddp")
    jobs = [
        Job(f"rank {rank}", f"{__name__}:ddp_rank", {"rank": rank, "folder": str(folder)}, str(folder / f"{rank}.log"))
        for rank in range(NODES)
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(Path(__file__).parent))
        with processes(jobs, folder / "guard.log") as started:
            while started.running:
                for ended in started.wait(60):
                    assert ended.code == 0, (folder / f"{ended.name.removeprefix('rank ')}.log").read_text()
    return {
        name: torch.tensor(json.loads((folder / f"{name}.json").read_text()), dtype=torch.float64)
        for name in OPTIMIZERS
    }


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
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
def test_every_exact_algorithm_equals_ddp(oracle: dict[str, torch.Tensor], optimizer: str, strategy: str) -> None:
    experiment = Experiment(
        workload="blobs", strategy=strategy, cluster=Cluster(nodes=NODES), training=Training(steps=STEPS, batch=BATCH)
    )
    replica = train_in_threads(experiment, blobs(samples=160, optimizer=OPTIMIZERS[optimizer]))[0]
    assert (replica.parameters - oracle[optimizer]).abs().max() < 1e-12
