"""All-reduce against torch's DistributedDataParallel: two ranks on a core each, side by side.

python benchmarks/against_ddp.py

DDP leaves each rank to its own BatchNorm, and so do the contestants that are compared with it; one more, with BatchNorm
over the samples of all ranks as it is by default, shows what that costs.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, Literal

import harness
import problems
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import TensorDataset

from minga import Experiment, Training
from minga.base.spec import parse
from minga.comm.rendezvous import join_meeting
from minga.comm.torch_dist import TorchTransport
from minga.data.order import Order
from minga.measure.recorder import Recorder
from minga.model.sync_batch_norm import channels_of_batch_norms
from minga.strategies import Strategy
from minga.training.loop import train
from minga.training.train_state import build_train_state

REPETITIONS = 25
RANKS = 2
STRATEGIES = ["native", "ring"]
TOGETHER = "native, BatchNorm over all nodes"


def rank_main(arguments: Mapping[str, Any]) -> dict[str, dict[str, list[float]]]:
    rank, port = arguments["rank"], arguments["port"]
    comm = TorchTransport(join_meeting("127.0.0.1", port, "minga", 60), rank=rank, size=RANKS, address="127.0.0.1")
    store = join_meeting("127.0.0.1", port, "ddp", 60)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=RANKS, timeout=timedelta(seconds=60))
    results = {}
    for name in problems.MODELS:
        contestants: dict[str, Callable[[], float]] = {"ddp": lambda name=name: ddp(name, rank)}
        for strategy in STRATEGIES:
            contestants[strategy] = lambda name=name, strategy=strategy: minga_loop(name, strategy, comm)
        if channels_of_batch_norms(problems.MODELS[name]()):
            contestants[TOGETHER] = lambda name=name: minga_loop(name, "native", comm, batch_norm="all_nodes")
        results[name] = harness.alternate(contestants, REPETITIONS, quiet=True)
    dist.destroy_process_group()
    comm.close()
    return results


def minga_loop(
    name: str, strategy: str, comm: TorchTransport, batch_norm: Literal["all_nodes", "each_node"] = "each_node"
) -> float:
    experiment = Experiment(
        workload=name,
        strategy=parse(Strategy, strategy),
        training=Training(steps=problems.STEPS[name], evaluate_every=0, batch_norm=batch_norm),
    )
    recorder = Recorder(None)
    train_state = build_train_state(experiment, problems.workload(name), comm.rank, recorder.spans)
    dist.barrier()
    began = time.perf_counter()
    train(experiment, train_state, comm, recorder)
    return time.perf_counter() - began


def ddp(name: str, rank: int) -> float:
    workload = problems.workload(name)
    torch.manual_seed(0)
    model = DistributedDataParallel(workload.model(), gradient_as_bucket_view=True)
    optimizer = problems.make_optimizer(model.parameters())
    assert isinstance(workload.train, TensorDataset)
    pictures, classes = workload.train.tensors
    order = Order(len(pictures), seed=0)
    dist.barrier()
    began = time.perf_counter()
    for _ in range(problems.STEPS[name]):
        indices = order.take(rank, RANKS, problems.BATCH[name]).indices
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(pictures[indices]), classes[indices]).backward()
        optimizer.step()
    return time.perf_counter() - began


def main() -> None:
    results = harness.on_ranks("against_ddp:rank_main", RANKS, {})[0]
    rows: list[dict[str, Any]] = []
    for name, seconds in results.items():
        steps = problems.STEPS[name]
        row: dict[str, Any] = {"model": name, "DDP, ms per step": 1000 * statistics.median(seconds["ddp"]) / steps}
        for strategy in STRATEGIES:
            row[f"{strategy}, ms per step"] = 1000 * statistics.median(seconds[strategy]) / steps
            row[f"{strategy} / DDP"] = harness.median_ratio(seconds, strategy, "ddp")
        if TOGETHER in seconds:
            row[f"{TOGETHER} / native"] = harness.median_ratio(seconds, TOGETHER, "native")
        rows.append({**row, "repetitions": REPETITIONS})
    harness.save(
        "against_ddp", rows, "two ranks, a core each, loopback: time relative to torch's DDP (below 1: faster)"
    )


if __name__ == "__main__":
    main()
