"""The same training with torch's DDP under torchrun, which starts all ranks again from a checkpoint when one dies.

    torchrun --standalone --nproc-per-node 4 --max-restarts 3 ddp_job.py '{"out": "DIR", "steps": 400, ...}'

Written as people write such scripts; its events are like Minga's.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from safetensors.torch import load_file, save_file
from torch.nn.parallel import DistributedDataParallel

from drills.paced import workload
from minga.data.batches import batches_in_order, fetch, length
from minga.data.order import Order
from minga.measure.events import Evaluated, Event, Resumed, Stepped

__all__ = ["main"]

CPU = torch.device("cpu")


def main() -> None:
    asked = json.loads(sys.argv[1])
    out, steps, every = Path(asked["out"]), asked["steps"], asked["checkpoint_every"]
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    with (out / f"rank-{rank}.jsonl").open("a", encoding="utf-8", buffering=1) as events:

        def emit(event: Event) -> None:
            print(event.to_json(), file=events)

        job = workload()
        torch.manual_seed(asked["seed"])
        model = DistributedDataParallel(job.model())
        optimizer = job.optimizer(model.parameters())
        rates = [group["lr"] for group in optimizer.param_groups]
        order = Order(length(job.train), asked["seed"])
        done = _restore(out, model, optimizer, order, asked["total_batch"])
        place: dict[str, Any] = {"rank": rank, "ranks": size, "pid": os.getpid()}
        emit(Resumed(time=time.perf_counter(), step=done, checkpoint="checkpoint.safetensors", **place))
        while done < steps:
            share = order.take(rank, size, 0, asked["total_batch"])
            batch = fetch(job.train, share.indices, CPU)
            assert job.schedule is not None
            for group, rate in zip(optimizer.param_groups, rates, strict=True):
                group["lr"] = rate * job.schedule(done / steps)
            optimizer.zero_grad()
            outputs, targets = job.predict(model, batch)
            (job.loss(outputs, targets) * share.weight).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            done += 1
            counts = {"samples": len(share.indices), "bytes_sent": 0, "messages_sent": 0}
            emit(
                Stepped(
                    time=time.perf_counter(),
                    step=done,
                    progress=done / steps,
                    epoch=order.progress,
                    loss=None,
                    seconds={},
                    **counts,
                )
            )
            if done % every == 0 and rank == 0:
                _save(out, model, optimizer, done)
        began = time.perf_counter()
        metrics = {"accuracy": _accuracy(job, model, rank, size)}
        now = time.perf_counter()
        emit(Evaluated(time=now, step=done, epoch=order.progress, metrics=metrics, seconds=now - began))
        dist.barrier()
        dist.destroy_process_group()


def _save(out: Path, model: torch.nn.Module, optimizer: torch.optim.Optimizer, done: int) -> None:
    tensors = {f"model.{name}": value.clone() for name, value in model.state_dict().items()}
    for number, state in optimizer.state_dict()["state"].items():
        tensors |= {f"optimizer.{number}.{name}": value.clone() for name, value in state.items()}
    tensors["step"] = torch.tensor([done])
    save_file(tensors, out / "new.safetensors")
    (out / "new.safetensors").replace(out / "checkpoint.safetensors")


def _restore(
    out: Path, model: torch.nn.Module, optimizer: torch.optim.Optimizer, order: Order, total_batch: int
) -> int:
    """The steps that are done; 0 without a checkpoint."""
    file = out / "checkpoint.safetensors"
    if not file.is_file():
        return 0
    tensors = load_file(file)
    model.load_state_dict({name[6:]: value for name, value in tensors.items() if name.startswith("model.")})
    state: dict[int, dict[str, Any]] = {}
    for name, value in tensors.items():
        if name.startswith("optimizer."):
            _, number, key = name.split(".", 2)
            state.setdefault(int(number), {})[key] = value
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})
    done = int(tensors["step"])
    for _ in range(done):
        order.advance(total_batch)
    return done


def _accuracy(job: Any, model: DistributedDataParallel, rank: int, size: int) -> float:
    samples = length(job.test)
    model.eval()
    right = torch.zeros((), dtype=torch.float64)
    with torch.no_grad():
        for batch in batches_in_order(job.test, samples * rank // size, samples * (rank + 1) // size, 256, CPU):
            outputs, targets = job.predict(model.module, batch)
            right += job.metrics["accuracy"](outputs, targets).sum()
    dist.all_reduce(right)
    return float(right) / samples


if __name__ == "__main__":
    main()
