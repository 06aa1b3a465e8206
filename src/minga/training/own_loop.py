"""For people with a training loop of their own: five changed lines make it distributed.

    run = minga.join()
    model, optimizer, loader = run.prepare(model, optimizer, loader)
    for inputs, targets in loader:
        run.step(loss_function(model(inputs), targets))      # instead of zero_grad, backward, optimizer.step
    run.finish()

`python script.py` trains alone, `minga launch --nodes 4 --strategy ring script.py` on four nodes.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils.data import DataLoader

from minga.base.spec import describe
from minga.comm import all_reduce_sum
from minga.comm.rendezvous import hold_meeting, join_group
from minga.comm.threads import ThreadWorld
from minga.comm.transport import Transport
from minga.data.order import Share
from minga.errors import ConfigError, UsageError, WorkloadError
from minga.measure.recorder import Recorder
from minga.model.buffers import agree_on_buffers
from minga.model.keras_parts import register_variables
from minga.model.replica import Replica
from minga.net.interfaces import own_address_towards
from minga.runs.directory import event_file
from minga.runs.experiment import load
from minga.strategies import AllReduce, Single, Strategy
from minga.strategies.capabilities import Serving, capability, check_nodes, trainers
from minga.training.loop import start_together
from minga.training.run_log import RunLog, traced
from minga.training.shared_loader import SharedLoader

__all__ = ["OwnLoop", "join"]


def join(strategy: str | Strategy | None = None, *, seed: int = 0) -> OwnLoop:
    """Become part of the run that this process was started for; alone, if it was started by itself.

    `minga launch` or torchrun says in the environment who this is and where the others are found. What it says of the
    strategy goes before what the script says.
    """
    given = os.environ
    made = Strategy.from_value(given.get("MINGA_STRATEGY") or strategy or AllReduce())
    if "RANK" not in given or "WORLD_SIZE" not in given:  # a script that is tried out alone has nobody to talk to
        return OwnLoop(Single(), ThreadWorld(1).transport(0), seed=seed)
    run = Path(given["MINGA_RUN"]) if "MINGA_RUN" in given else None
    try:
        rank, size, port = (int(given[name]) for name in ("RANK", "WORLD_SIZE", "MASTER_PORT"))
        timeout_seconds = float(given.get("MINGA_TIMEOUT_SECONDS", "120"))
    except (KeyError, ValueError) as error:
        raise ConfigError(
            f"RANK and WORLD_SIZE are set, but {error} is missing or malformed; "
            "start the script with 'minga launch' or torchrun, or set MASTER_ADDR and MASTER_PORT too"
        ) from None
    servers = made.traits.servers
    if servers and run is not None and "MINGA_STRATEGY" not in given:
        raise ConfigError(f"{describe(made)} needs servers: give it to 'minga launch --strategy', which starts them")
    if size <= servers:
        raise ConfigError(f"{size} ranks are too few for {describe(made)}: {servers} of them serve")
    check_nodes(made, size - servers)
    address = socket.gethostbyname(given.get("MASTER_ADDR", "127.0.0.1"))
    resources = contextlib.ExitStack()
    held_by_launcher = run is not None or given.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    if rank == 0 and not held_by_launcher:
        resources.enter_context(hold_meeting(address, port))
    transport = join_group(
        address,
        port,
        run.name if run is not None else given.get("TORCHELASTIC_RUN_ID", "minga"),
        rank=rank,
        size=size,
        address=own_address_towards(address, port),
        timeout_seconds=timeout_seconds,
        # All hosts of a lab have this machine's name, so the launcher gives them others.
        hosts=given.get("MINGA_HOST") or socket.gethostname(),
    )
    return OwnLoop(made, transport, run, seed=seed, resources=resources)


class OwnLoop:
    """A user's own training loop as part of a run."""

    def __init__(
        self,
        strategy: Strategy,
        transport: Transport,
        run: Path | None = None,
        *,
        seed: int = 0,
        resources: contextlib.ExitStack | None = None,
    ) -> None:
        """`run`: the directory for its events, if there is one; `resources`: what is given back at the end."""
        self.strategy = strategy
        self._seed = seed
        self._experiment = None if run is None else load(run / "experiment.toml")
        self._recorder = Recorder(None if run is None else event_file(run, transport.rank))
        self._comm = traced(transport, self._recorder)
        self._resources = resources or contextlib.ExitStack()
        self._resources.callback(self._comm.close)
        self._resources.callback(self._recorder.close)
        self._replica: Replica | None = None
        self._loader: SharedLoader
        self._run_log: RunLog
        self._samples = 0
        self._updating = False
        self._finished = False
        self._gradients_version = 0

    @property
    def rank(self) -> int:
        """This process's number; print and save on rank 0 only."""
        return self._comm.rank

    @property
    def workers(self) -> int:
        """How many ranks train."""
        if self._replica is None:
            return self._comm.size - self.strategy.traits.servers
        return trainers(self.strategy, self._replica, self._comm)

    def prepare(
        self, model: nn.Module, optimizer: Optimizer, loader: DataLoader[Any]
    ) -> tuple[nn.Module, Optimizer, SharedLoader]:
        """Make model, optimizer and loader part of the run. Servers stay in here and leave when all is done."""
        if self._replica is not None:
            raise UsageError("run.prepare was called twice; prepare one model, optimizer and loader")
        if loader.num_workers and self.strategy.traits.changes_roles:
            raise WorkloadError(
                "this strategy changes the number of workers on the way: use num_workers=0 in the loader"
            )
        register_variables(model)
        replica = self._replica = Replica(model, optimizer, spans=self._recorder.spans, keep_optimizer=True)
        replica.rank = self.rank
        optimizer.register_step_pre_hook(self._refuse_double_step)
        self._loader = SharedLoader(
            loader, seed=self._seed, rank=self.rank, workers=lambda: self.workers, taking=self._take
        )
        self._run_log = RunLog(replica, self._comm, self._recorder, self._experiment, strategy=self.strategy)
        start_together(self.strategy, replica, self._comm)
        self._run_log.started(samples=self._loader.order.samples, batch=self._loader.batch, epochs=None, steps=None)
        self._gradients_version = replica.gradients_version
        atexit.register(self._check_finished)
        self._serve_if_asked(replica)
        return model, optimizer, self._loader

    def step(self, loss: Tensor) -> None:
        """Backward, exchange, update: instead of `zero_grad()`, `loss.backward()` and `optimizer.step()`."""
        replica = self._prepared()
        if replica.has_other_gradients(self._gradients_version):
            raise UsageError(
                "there are gradients before run.step(loss), which computes them itself: remove loss.backward(); to add "
                "up those of several batches, give it their losses together: run.step((first + second) / 2)"
            )
        self._step(lambda: loss)

    def sum(self, *values: float) -> list[float]:
        """Sums over all workers, such as of correct answers and of samples."""
        together = self._comm.group(range(self.workers))
        with self._run_log.messages_aside(together) if self._replica is not None else contextlib.nullcontext():
            return all_reduce_sum(together, *values)

    def agree(self) -> None:
        """Make BatchNorm statistics and other buffers equal on all workers: before evaluating or saving."""
        model, together = self._prepared().model, self._comm.group(range(self.workers))
        with self._run_log.messages_aside(together):
            agree_on_buffers(model, together)

    def finish(self) -> None:
        """After the last step: all workers have the same model."""
        replica = self._prepared()
        with self._recorder.spans.span("exchange"):
            self.strategy.finish(replica, self._comm)
        self._run_log.finished()
        self.agree()
        self._finished = True

    def close(self) -> None:
        """Give back connections; done at the end of the process otherwise."""
        self._resources.close()

    def _prepared(self) -> Replica:
        if self._replica is None:
            raise UsageError("call model, optimizer, loader = run.prepare(model, optimizer, loader) first")
        if self._finished:
            raise UsageError("run.finish was called already; no step can follow")
        return self._replica

    def _take(self, share: Share) -> None:
        """The samples of the next step; where this rank has none, it takes part without any."""
        replica = self._prepared()
        self._samples = len(share.indices)
        replica.statistics.keep()  # the script goes forward next
        replica.info.weight, replica.info.batch_fraction = share.weight, self._samples / self._loader.batch
        if not self._samples:
            self._step(None)

    def _step(self, compute_loss: Callable[[], Tensor] | None) -> None:
        replica = self._prepared()
        replica.step += 1
        replica.compute_gradients(compute_loss)
        self._updating = True
        try:
            with self._recorder.spans.span("exchange"):
                self.strategy.step(replica, self._comm)
        finally:
            self._updating = False
        self._gradients_version = replica.gradients_version
        self._run_log.stepped(samples=self._samples, progress=0.0, epoch=self._loader.order.progress)
        self._serve_if_asked(replica)

    def _serve_if_asked(self, replica: Replica) -> None:
        if self.rank >= self.workers:
            with self._run_log.serving():
                capability(self.strategy, replica, Serving).serve(replica, self._comm)
            self._finished = True
            sys.exit(0)  # a server has no part in the rest of the user's script

    def _refuse_double_step(self, *_: Any) -> None:
        if not self._updating:
            raise UsageError("run.step(loss) updates the model already: remove optimizer.step() from the loop")

    def _check_finished(self) -> None:
        if not self._finished and self._comm.size > 1:
            print("minga: the script ended without run.finish(); the replicas may differ", file=sys.stderr)
        self.close()
