"""Messages between processes over torch's own backends: gloo for the CPU, NCCL for GPUs.

    comm = TorchTransport(store, rank=0, size=4, address="127.0.0.1")

The process groups are made directly, without torch's global one: nothing is shared between two runs in one
process, and a group can be formed again while the process lives. Gloo listens only on `address`. Tensors on
a GPU go through NCCL, those in memory (headers, counts) through gloo. Messages are pickle-free.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from minga.comm.background import RealTimeTransport
from minga.comm.tcp import DataListener, TcpTransport
from minga.comm.transport import Done, Pending
from minga.errors import PeerLost, PeerTimeout, UnsupportedError
from minga.net.generation import Generation, MemberInfo, new_incarnation, new_secret
from minga.net.strict import parse

__all__ = ["TorchTransport"]

# Messages of `start` jobs live above this tag, so that they never meet the caller's.
_BACKGROUND = 1 << 20
# How long a rank that gave up waits for the others to say whether they wait too.
_ROLL_CALL_SECONDS = 1.0


class TorchTransport(RealTimeTransport):
    """One process of a group of `size`, over gloo and, on GPUs, NCCL."""

    def __init__(
        self,
        store: Any,
        *,
        rank: int,
        size: int,
        address: str,
        timeout_seconds: float = 120.0,
        hosts: Sequence[str] | None = None,
    ) -> None:
        super().__init__(rank, size, hosts, timeout_seconds)
        self._store = store
        self.timeout_seconds = timeout_seconds
        self._device = dist.ProcessGroupGloo.create_device(hostname=address)
        self._groups: dict[tuple[str, tuple[int, ...], str], Any] = {}
        self._everybody = tuple(range(size))
        self._channel = "main"
        self._listener = DataListener(address)
        self._gathering: TcpTransport | None = None
        try:
            self._publish()
            self._messages = self._group("messages", self._everybody, "cpu")
            # Everybody is connected then; otherwise a rank with nothing to say could leave while others still connect.
            self._collective(self._messages.barrier(), self._everybody).wait()
            self._gathering = self._gather_over_tcp()
        except BaseException:
            self.close()
            raise

    def beside(self) -> TorchTransport:
        other = self._above(_BACKGROUND)
        other._channel = "background"
        other._gathering = None if self._gathering is None else self._gathering.beside()
        return other

    def isend(self, tensor: Tensor, to: int, tag: int = 0) -> Pending:
        if tensor.numel() == 0:
            return Done(self.rank)
        work = self._group_for(tensor).send([tensor.detach()], to, tag + self._offset)
        return _Work(work, self, self._everybody, lambda: f"send to rank {to}", to)

    def ireceive(self, tensor: Tensor, source: int | None, tag: int = 0) -> Pending:
        group = self._group_for(tensor)
        if source is None:
            if tensor.is_cuda:
                raise UnsupportedError("NCCL can't receive from any rank; keep headers in CPU memory")
            work = group.recv_anysource([tensor.detach()], tag + self._offset)
            return _Work(work, self, self._everybody, lambda: "receive from any rank", None)
        if tensor.numel() == 0:
            return Done(source)
        work = group.recv([tensor.detach()], source, tag + self._offset)
        return _Work(work, self, self._everybody, lambda: f"receive from rank {source}", source)

    def all_reduce(self, tensor: Tensor, ranks: Sequence[int] | None = None) -> Pending:
        members = tuple(self.members(ranks))
        if len(members) == 1 or tensor.numel() == 0:
            return Done(self.rank)
        # Collectives of one group are matched by their order, so each channel has a group of its own.
        group = self._group(self._channel, members, tensor.device.type)
        return self._collective(group.allreduce([tensor.detach()]), members)

    def all_gather(self, buffers: Sequence[Tensor], ranks: Sequence[int] | None = None) -> None:
        if buffers[0].is_cuda or self._gathering is None:
            super().all_gather(buffers, ranks)
        else:
            self._gathering.all_gather(buffers, ranks)

    def close(self) -> None:
        super().close()
        if self._gathering is not None:
            self._gathering.close()
        self._listener.close()
        for group in self._groups.values():
            group.shutdown()
        self._groups.clear()

    def _collective(self, work: Any, members: Sequence[int]) -> Pending:
        def what() -> str:
            return f"finish an all-reduce with ranks {list(members)}"

        return _Work(work, self, members, what, self.rank, synchronize=torch.cuda.is_available())

    def _group_for(self, tensor: Tensor) -> Any:
        return self._group("messages", self._everybody, "cuda") if tensor.is_cuda else self._messages

    def _group(self, channel: str, members: tuple[int, ...], device: str) -> Any:
        """The process group of some ranks; made at the first use, by all of them at the same point."""
        key = (channel, members, device)
        if key not in self._groups:
            name = f"{channel}/{device}/{'-'.join(map(str, members))}"
            store = dist.PrefixStore(name, self._store)  # type: ignore[attr-defined]
            self._groups[key] = self._form(store, members.index(self.rank), len(members), device)
        return self._groups[key]

    def _form(self, store: Any, rank: int, size: int, device: str) -> Any:
        timeout = timedelta(seconds=self.timeout_seconds)
        if device == "cuda":
            nccl = dist.ProcessGroupNCCL.Options()
            nccl._timeout = timeout
            return dist.ProcessGroupNCCL(store, rank, size, nccl)
        gloo = dist.ProcessGroupGloo._Options()  # type: ignore[attr-defined]
        gloo._devices = [self._device]
        gloo._timeout = timeout
        gloo._threads = 2
        try:
            return dist.ProcessGroupGloo(store, rank, size, gloo)
        except RuntimeError as error:
            raise PeerTimeout(
                f"rank {rank}: not all {size} ranks connected within {self.timeout_seconds:g} s ({error})"
            ) from error

    def _publish(self) -> None:
        """Where others find this rank, and what they must know to be let in: only who can read the store does."""
        info = MemberInfo(
            id=str(self.rank), incarnation=new_incarnation(), address=self._listener.address, port=self._listener.port
        )
        self._store.set(f"listener/{self.rank}", json.dumps(asdict(info)))
        if self.rank == 0:
            self._store.set("secret", json.dumps(new_secret()))

    def _gather_over_tcp(self) -> TcpTransport:
        """Connections for what everybody sends to everybody: gloo would take the core from training for each packet."""
        members = tuple(parse(MemberInfo, self._read(f"listener/{rank}"), "member") for rank in self._everybody)
        generation = Generation(number=0, members=members, secret=self._read("secret"))
        return TcpTransport(generation, self.rank, self._listener, self.timeout_seconds, connect_at_once=False)

    def _read(self, key: str) -> Any:
        try:
            return json.loads(self._store.get(key))
        except RuntimeError as error:
            raise PeerTimeout(f"rank {self.rank} did not find {key!r} in the store: {error}") from error

    def failure(self, error: RuntimeError, seconds: float, what: str, members: Sequence[int]) -> PeerLost:
        """With gloo every error is a RuntimeError; the text says which kind it is."""
        text = str(error).strip()
        if "timed out" in text.lower() or "timeout" in text.lower():
            absent = self._absent(members)
            whom = f" Not waiting like the others: rank {', '.join(map(str, absent))}." if absent else ""
            return PeerTimeout(
                f"{what} within {seconds:g} s: slow, stopped, or not at the same point of the program.{whom} "
                "If it is only slow, raise cluster.timeout_seconds"
            )
        return PeerLost(f"{what}: the connection is gone ({text[:200]})")

    def _absent(self, members: Sequence[int]) -> list[int]:
        """Which members don't say that they wait too: they are the ones to look at."""
        try:
            count = self._store.add(f"waiting/{self.rank}", 1)
            time.sleep(_ROLL_CALL_SECONDS)
            return [rank for rank in members if self._store.add(f"waiting/{rank}", 0) < count]
        except RuntimeError:  # the store is gone too: nobody can be asked
            return []


@dataclass(eq=False)
class _Work(Pending):
    """A message or a native collective under way."""

    work: Any
    comm: TorchTransport
    members: Sequence[int]
    """Who takes part, or may."""
    what: Callable[[], str]
    """In words, for when it fails."""
    source: int | None
    """What `wait` returns; None: who has sent it."""
    synchronize: bool = False
    """Whether it is done only when the GPU has done all that it was asked for."""

    def wait(self, patience: float = 1.0) -> int:
        seconds = self.comm.timeout_seconds * patience
        try:
            self.work.wait(timedelta(seconds=seconds))
            if self.synchronize:
                torch.cuda.current_stream().synchronize()
        except RuntimeError as error:
            what = f"rank {self.comm.rank} could not {self.what()}"
            raise self.comm.failure(error, seconds, what, self.members) from error
        return int(self.work._source_rank()) if self.source is None else self.source

    def cancel(self) -> None:
        # Gloo holds its side of a receive by a weak pointer, so letting go of the work is enough.
        self.work = None
