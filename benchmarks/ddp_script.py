"""Torch's DistributedDataParallel as people write it, as a script of `minga launch`, with what is measured around it.

Its only argument is JSON; `contest.py` starts it on the hosts of a lab:
{"workload": "recipes.py:fashion_mnist", "epochs": 4, "total_batch": 64, "seed": 0, "powersgd_rank": null,
 "limit_seconds": null, "out": "DIR"}
"""

from __future__ import annotations

import json
import os
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import psutil
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

from minga import Workload
from minga.comm.rendezvous import join_meeting
from minga.data.batches import batches_in_order, fetch, length
from minga.data.order import Order
from minga.measure.interfaces import InterfaceMeter
from minga.net.interfaces import own_address_towards
from minga.runs.workload import load_workload

CPU = torch.device("cpu")
# Bytes of a bucket are allocated and buckets are formed again in the first steps, which say little about the rest.
WARM_UP_STEPS = 2
TRIAL_STEPS = 3
# The hook sends whole gradients until this step; torch allows no earlier one with error feedback.
POWERSGD_FROM_STEP = 2


def main() -> None:
    asked = json.loads(sys.argv[1])
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    connect(rank, size)
    training = Training(asked, rank, size)
    result = training.first_steps(asked["limit_seconds"]) if asked["limit_seconds"] else training.all_steps()
    (Path(asked["out"]) / f"{rank}.json").write_text(json.dumps(result))
    dist.barrier()
    # Not destroy_process_group: it may wait for ever, once the peer is gone.
    os._exit(0)


def connect(rank: int, size: int) -> None:
    """Through the launcher's store; gloo would otherwise look for this machine's name, which no host of a lab has."""
    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    own = own_address_towards(address, port)
    os.environ["GLOO_SOCKET_IFNAME"] = next(
        name for name, held in psutil.net_if_addrs().items() if own in {entry.address for entry in held}
    )
    timeout = float(os.environ["MINGA_TIMEOUT_SECONDS"])
    dist.init_process_group(
        "gloo",
        store=join_meeting(address, port, "ddp", timeout),
        rank=rank,
        world_size=size,
        timeout=timedelta(seconds=timeout),
    )


class Training:
    """One rank's model and its place in the data."""

    def __init__(self, asked: dict[str, Any], rank: int, size: int) -> None:
        self.rank, self.size = rank, size
        self.epochs, self.total_batch = asked["epochs"], asked["total_batch"]
        self.workload: Workload = load_workload(asked["workload"], None)
        samples = length(self.workload.train)
        assert samples % self.total_batch == 0 == self.total_batch % size, "equal shares, so that DDP's mean is right"
        self.steps = self.epochs * samples // self.total_batch
        self.evaluations = round(self.epochs / asked["evaluate_every"])
        assert self.steps % self.evaluations == 0, "equally many steps between evaluations"
        torch.manual_seed(asked["seed"])
        # With several buckets the hook's collectives run in the order in which gloo's threads get to them, which is not
        # the same on all ranks: most starts then die. In one bucket (a given size also holds for the first) they chain.
        buckets: dict[str, Any] = {"bucket_cap_mb": 25} if asked["powersgd_rank"] else {}
        self.model = DistributedDataParallel(self.workload.model(), gradient_as_bucket_view=True, **buckets)
        if asked["powersgd_rank"]:
            state = powerSGD_hook.PowerSGDState(
                process_group=None,
                matrix_approximation_rank=asked["powersgd_rank"],
                start_powerSGD_iter=POWERSGD_FROM_STEP,
            )
            self.model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
        self.optimizer = self.workload.optimizer(self.model.parameters())
        self.rates = [group["lr"] for group in self.optimizer.param_groups]
        self.order = Order(samples, asked["seed"])
        self.done = 0
        self.meter = InterfaceMeter()

    def step(self) -> None:
        share = self.order.take(self.rank, self.size, 0, self.total_batch)
        batch = fetch(self.workload.train, share.indices, CPU)
        if self.workload.schedule is not None:
            factor = self.workload.schedule(self.order.progress / self.epochs)
            for group, rate in zip(self.optimizer.param_groups, self.rates, strict=True):
                group["lr"] = rate * factor
        self.optimizer.zero_grad()
        outputs, targets = self.workload.predict(self.model, batch)
        self.workload.loss(outputs, targets).backward()
        self.optimizer.step()
        self.done += 1

    def all_steps(self) -> dict[str, Any]:
        """Train to the end, with evaluations on the way that don't count."""
        seconds, curve = 0.0, []
        for _ in range(self.evaluations):
            seconds += self.timed(self.steps // self.evaluations)
            curve.append([seconds, self.accuracy(), self.done])
        return {"seconds": seconds, "bytes": self.bytes_sent, "steps": self.done, "curve": curve}

    def first_steps(self, limit_seconds: float) -> dict[str, Any]:
        """As many steps as fit into about `limit_seconds`, and what they say about all of them."""
        self.timed(WARM_UP_STEPS)
        trial = self.timed(TRIAL_STEPS) / TRIAL_STEPS
        left = self.steps - self.done
        count = torch.tensor([min(left, max(TRIAL_STEPS, int(limit_seconds / trial)))])
        dist.broadcast(count, src=0)
        self.meter = InterfaceMeter()
        steps = int(count)
        seconds = self.timed(steps)
        return {
            "seconds": seconds / steps * self.steps,
            "bytes": self.bytes_sent / steps * self.steps,
            "steps": self.steps,
            "measured_steps": steps,
        }

    def timed(self, steps: int) -> float:
        """Seconds of some steps, from when everybody is ready."""
        self.meter.resume()
        dist.barrier()
        began = time.perf_counter()
        for _ in range(steps):
            self.step()
        seconds = time.perf_counter() - began
        self.meter.pause()
        return seconds

    @property
    def bytes_sent(self) -> int:
        """Without headers."""
        return self.meter.counts.payload_sent if self.meter.counts is not None else 0

    def accuracy(self) -> float:
        """On the whole test set, of which each rank looks at its part."""
        assert self.workload.test is not None
        samples = length(self.workload.test)
        start, stop = samples * self.rank // self.size, samples * (self.rank + 1) // self.size
        model: nn.Module = self.model.module
        model.eval()
        accuracy: Any = self.workload.metrics["accuracy"]  # a function of a batch, in these workloads
        right = torch.zeros((), dtype=torch.float64)
        with torch.no_grad():
            for batch in batches_in_order(self.workload.test, start, stop, 256, CPU):
                outputs, targets = self.workload.predict(model, batch)
                right += accuracy(outputs, targets).sum()
        model.train()
        dist.all_reduce(right)
        return float(right) / samples


if __name__ == "__main__":
    main()
