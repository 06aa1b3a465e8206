"""The one interface that matters: how replicas exchange what they learn, and when."""

from __future__ import annotations

import contextlib
import dataclasses
import sys
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar

from torch import Tensor

from minga.base.config import FieldError
from minga.base.spec import Named, describe
from minga.codecs.base import Codec
from minga.codecs.plain import Plain
from minga.codecs.stream import Stream
from minga.comm import Transport, all_reduce_mean, become_mean, broadcast, same_everywhere
from minga.model.layout import Bucket
from minga.model.memory import Memory, recall, remember
from minga.model.replica import Replica

__all__ = ["Strategy", "refuse_momentum_correction"]


def refuse_momentum_correction(codec: Codec) -> None:
    """For the checks of strategies that exchange parameters: momentum is corrected in gradients."""
    if codec.corrects_momentum:
        raise FieldError(
            ("codec",),
            f"{describe(codec)} corrects momentum of gradients, which are not exchanged here; "
            "leave momentum_correction out, or use it with allreduce or ps",
        )


@dataclass(frozen=True, kw_only=True)
class Strategy(Named, ABC):
    """How replicas exchange what they learn.

    The fields are the configuration; what changes during a run lives in `replica.state`. A strategy talks only to
    `comm` and `replica`: it does not know whether ranks are processes, threads or simulated, and never measures,
    logs or prints. Every wait has a deadline: when a peer fails, `PeerLost` ends the step and names it.
    """

    kind = "strategy"

    replicas_differ: ClassVar[bool] = False
    """Whether the replicas of ranks that are in step may differ between steps."""

    codec: Codec = field(default_factory=Plain)
    """The form that vectors have on the wire."""

    @property
    def codecs(self) -> tuple[Codec, ...]:
        """All that it may encode with."""
        return (self.codec,)

    @abstractmethod
    def step(self, replica: Replica, comm: Transport) -> None:
        """After each backward pass: exchange, update."""

    def start(self, replica: Replica, comm: Transport) -> None:
        """Before the first step, on every rank; default: everybody takes rank 0's parameters, if they differ."""
        if not replica.agreed and not same_everywhere(comm, replica.parameters):
            broadcast(comm, replica.parameters)
        replica.peers = comm.size

    def gradient_ready(self, replica: Replica, bucket: Bucket, comm: Transport) -> None:
        """While backward runs, for each bucket in order, if `start` called `replica.cut_buckets`."""

    def serve(self, replica: Replica, comm: Transport) -> None:
        """Run by ranks that hold parameters instead of training, until the others are done."""
        raise NotImplementedError(f"{type(self).__name__} has no servers")

    def finish(self, replica: Replica, comm: Transport) -> None:
        """After the last step, on the ranks that train; afterwards all replicas agree. Default: their mean."""
        become_mean(comm, replica.parameters)

    def stream(self, replica: Replica, name: str = "main", part: slice | None = None) -> Stream:
        """What the codec remembers of one kind of vector: of the length of `part` of the parameters (None: all)."""
        streams: dict[str, Stream] = replica.state.setdefault("streams", {})
        if name not in streams:
            start, stop, _ = (part or slice(None)).indices(replica.layout.length)
            # Names count, so that two streams of a rank don't draw the same random numbers.
            seed = zlib.crc32(name.encode())
            streams[name] = Stream(tuple(replica.layout.shapes(start, stop)), seed=seed, rank=replica.rank)
        return streams[name]

    @property
    def exchanges_gradients(self) -> bool:
        """Whether it needs gradients while backward runs, by `gradient_ready`."""
        return type(self).gradient_ready is not Strategy.gradient_ready

    @contextlib.contextmanager
    def as_one(self, replica: Replica, together: Transport) -> Iterator[None]:
        """Around an evaluation on the way: meanwhile every replica is what all would agree on now, their mean."""
        if not self.replicas_differ or together.size == 1:
            yield
            return
        own = replica.parameters.clone()
        try:
            all_reduce_mean(together, replica.parameters)  # a peer may fail in the middle of it
            yield
        finally:
            replica.parameters.copy_(own)

    @property
    def server_ranks(self) -> int:
        """Ranks on top of the nodes, for servers."""
        return 0

    @property
    def servers_beside_workers(self) -> bool:
        """Whether the servers live in the processes of the first workers instead of their own."""
        return False

    @property
    def changes_trainers(self) -> bool:
        """Whether ranks take another role on the way."""
        return False

    def trainers(self, replica: Replica, comm: Transport) -> int:
        """How many ranks train now: ranks 0 to this. The others serve."""
        return comm.size - self.server_ranks

    @property
    def servers_in_step(self) -> bool:
        """Whether all ranks that train are at the same step where there are servers."""
        return True

    def carried(self, replica: Replica) -> dict[str, Any]:
        """What all ranks have agreed on and go on with when some of them go or come: numbers, strings, lists."""
        return {}

    def carry(self, replica: Replica, carried: dict[str, Any]) -> None:
        """Before `start`, on all ranks that have formed anew: go on with that."""

    def lockstep(self, replica: Replica) -> bool:
        """Whether all ranks that train are at the same step now, so that they can evaluate together."""
        return True

    def averages_gradients(self, replica: Replica) -> bool:
        """Whether ranks in step average the gradients of the step under way, as one process with all samples would."""
        return False

    def exchanges(self, replica: Replica) -> bool:
        """Whether the step under way may change parameters by what other ranks know; if unsure, yes."""
        return True

    @property
    def hides_exchanges(self) -> bool:
        """Whether an exchange may still go on in the background when `step` has returned; if unsure, yes."""
        return True

    # --- for checkpoints: most strategies need nothing but the defaults -----------------------------------------

    def pause(self, replica: Replica, comm: Transport) -> None:
        """Before a checkpoint, on all ranks that are in step: wait for exchanges under way, so that none is.

        What they bring is kept and taken in when its time comes: a checkpoint changes nothing in training.
        """

    def memory(self, replica: Replica) -> Memory:
        """What is remembered between steps; default: all of `replica.state`."""
        return remember(replica.state)

    def recall(self, replica: Replica, memory: Memory) -> None:
        """After `start`, on as many ranks as before: go on from a memory; default: it becomes `replica.state`."""
        replica.state = recall(memory, replica.state, *self._vocabulary())

    def resume(self, replica: Replica, comm: Transport) -> None:
        """After a checkpoint was put back, on all ranks, before they go on."""

    def announce(self, replica: Replica, comm: Transport, moment: int, *, leaving: bool) -> None:
        """This rank, which trains, has taken its part of a checkpoint: tell those that serve it, part if leaving."""

    def contribution(self, replica: Replica) -> Tensor:
        """This rank's part in the mean that all would agree on now, as long as `parameters`."""
        return replica.parameters

    def _vocabulary(self) -> tuple[dict[str, type[Any]], dict[str, Named]]:
        """The dataclasses and the configurations that a memory of this strategy may mention, by name.

        They are those that its own file and those of its base classes know, and those of strategies that these know:
        so nothing has to be imported for a memory, which may come from another machine.
        """
        files = [vars(sys.modules[cls.__module__]) for cls in type(self).__mro__ if cls.__module__ in sys.modules]
        used = [type(value) for value in vars(self).values() if isinstance(value, Strategy)]
        used += [v for names in files for v in names.values() if isinstance(v, type) and issubclass(v, Strategy)]
        files += [vars(sys.modules[cls.__module__]) for cls in used]
        kinds: dict[str, type[Any]] = {}
        configurations: dict[str, Named] = {}
        for names in files:
            for value in names.values():
                if isinstance(value, type) and dataclasses.is_dataclass(value):
                    kinds.setdefault(value.__name__, value)
                for each in value if isinstance(value, tuple) else (value,):
                    if isinstance(each, Codec):
                        configurations.setdefault(describe(each), each)
        own = [self, *(value for value in vars(self).values() if isinstance(value, Strategy))]
        configurations |= {describe(strategy.codec): strategy.codec for strategy in own}
        return kinds, configurations

    def check_nodes(self, nodes: int) -> None:
        """Raise `FieldError` if this many nodes can't work."""
