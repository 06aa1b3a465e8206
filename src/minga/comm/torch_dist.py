"""Messages between processes over torch's own backends: gloo for the CPU, NCCL for GPUs.

    comm = TorchTransport(store, rank=0, size=4, address="127.0.0.1")

The process groups are made directly, without torch's global one: nothing is shared between two runs in one
process, and a group can be formed again while the process lives. Gloo listens only on `address`. Tensors on
a GPU go through NCCL, those in memory (headers, counts) through gloo. Messages are pickle-free.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from minga.comm.background import BackgroundThread
from minga.comm.tcp import DataListener, TcpTransport
from minga.comm.transport import Done, Pending, Transport
from minga.errors import PeerLost, PeerTimeout, UnsupportedError
from minga.net.generation import Generation, MemberInfo, new_incarnation, new_secret

__all__ = ["TorchTransport"]

# Messages of `start` jobs live above this tag, so that they never meet the caller's.
_BACKGROUND = 1 << 20
# How long a rank that gave up waits for the others to say whether they wait too.
_ROLL_CALL_SECONDS = 1.0


class TorchTransport(Transport):
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
        self.rank = rank
        self.size = size
        self.hosts = list(hosts) if hosts is not None else ["localhost"] * size
        self._shared = _Shared(store, rank, size, address, timeout_seconds)
        self._everybody = tuple(range(size))
        self._channel = "main"
        self._offset = 0
        self._background = BackgroundThread(rank, timeout_seconds * 2)
        try:
            self._messages = self._shared.group("messages", self._everybody, "cpu")
            # Everybody is connected then; otherwise a rank with nothing to say could leave while others still connect.
            _Collective(self._messages.barrier(), self._shared, rank, self._everybody).wait()
        except BaseException:
            self._shared.close()
            raise

    def _beside(self) -> TorchTransport:
        """The same process and connections, with messages of its own."""
        other = object.__new__(TorchTransport)
        other.__dict__.update(self.__dict__)
        other._channel = "background"
        other._offset = self._offset + _BACKGROUND
        return other

    def isend(self, tensor: Tensor, to: int, tag: int = 0) -> Pending:
        if tensor.numel() == 0:
            return Done(self.rank)
        work = self._group_for(tensor).send([tensor.detach()], to, tag + self._offset)
        return _Message(work, self._shared, self.rank, to, "send to")

    def ireceive(self, tensor: Tensor, source: int | None, tag: int = 0) -> Pending:
        group = self._group_for(tensor)
        if source is None:
            if tensor.is_cuda:
                raise UnsupportedError("NCCL can't receive from any rank; keep headers in CPU memory")
            work = group.recv_anysource([tensor.detach()], tag + self._offset)
            return _Message(work, self._shared, self.rank, None, "receive from")
        if tensor.numel() == 0:
            return Done(source)
        work = group.recv([tensor.detach()], source, tag + self._offset)
        return _Message(work, self._shared, self.rank, source, "receive from")

    def now(self) -> float:
        return time.perf_counter()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def start(self, function: Callable[[Transport], None]) -> Pending:
        background = self._beside()
        return self._background.submit(lambda: function(background))

    def all_reduce(self, tensor: Tensor, ranks: Sequence[int] | None = None) -> Pending:
        members = self._everybody if ranks is None else tuple(ranks)
        if len(members) == 1 or tensor.numel() == 0:
            return Done(self.rank)
        # Collectives of one group are matched by their order, so each channel has a group of its own.
        group = self._shared.group(self._channel, members, tensor.device.type)
        return _Collective(group.allreduce([tensor.detach()]), self._shared, self.rank, members)

    def all_gather(self, buffers: Sequence[Tensor], ranks: Sequence[int] | None = None) -> None:
        if buffers[0].is_cuda:
            super().all_gather(buffers, ranks)
        else:
            gathering = self._shared.gathering()
            (gathering if self._channel == "main" else gathering.beside()).all_gather(buffers, ranks)

    def close(self) -> None:
        self._background.close()
        self._shared.close()

    def _group_for(self, tensor: Tensor) -> Any:
        if tensor.is_cuda:
            return self._shared.group("messages", self._everybody, "cuda")
        return self._messages


class _Shared:
    """What the foreground and the background of one process have in common."""

    def __init__(self, store: Any, rank: int, size: int, address: str, timeout_seconds: float) -> None:
        self.store = store
        self.size = size
        self.timeout_seconds = timeout_seconds
        self._rank = rank
        self._device = dist.ProcessGroupGloo.create_device(hostname=address)
        self._groups: dict[tuple[str, tuple[int, ...], str], Any] = {}
        self._lock = threading.Lock()
        self._listener = DataListener(address)
        self._gathering: TcpTransport | None = None
        self._publish()

    def group(self, channel: str, members: tuple[int, ...], device: str) -> Any:
        """The process group of some ranks; made at the first use, by all of them at the same point."""
        key = (channel, members, device)
        if key not in self._groups:
            name = f"{channel}/{device}/{'-'.join(map(str, members))}"
            store = dist.PrefixStore(name, self.store)  # type: ignore[attr-defined]
            self._groups[key] = self._form(store, members.index(self._rank), len(members), device)
        return self._groups[key]

    def gathering(self) -> TcpTransport:
        """Connections for what everybody sends to everybody: gloo would take the core from training for each packet."""
        with self._lock:
            if self._gathering is None:
                generation = Generation(
                    number=0,
                    members=tuple(MemberInfo.from_dict(self._read(f"listener/{rank}")) for rank in range(self.size)),
                    secret=self._read("secret"),
                )
                self._gathering = TcpTransport(
                    generation, self._rank, self._listener, self.timeout_seconds, connect_at_once=False
                )
            return self._gathering

    def _publish(self) -> None:
        """Where others find this rank, and what they must know to be let in: only who can read the store does."""
        info = MemberInfo(
            id=str(self._rank), incarnation=new_incarnation(), address=self._listener.address, port=self._listener.port
        )
        self.store.set(f"listener/{self._rank}", json.dumps(info.to_dict()))
        if self._rank == 0:
            self.store.set("secret", json.dumps(new_secret()))

    def _read(self, key: str) -> Any:
        try:
            return json.loads(self.store.get(key))
        except RuntimeError as error:
            raise PeerTimeout(f"rank {self._rank} did not find {key!r} in the store: {error}") from error

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

    def absent(self, members: Sequence[int]) -> list[int]:
        """Which members don't say that they wait too: they are the ones to look at."""
        try:
            count = self.store.add(f"waiting/{self._rank}", 1)
            time.sleep(_ROLL_CALL_SECONDS)
            return [rank for rank in members if self.store.add(f"waiting/{rank}", 0) < count]
        except RuntimeError:  # the store is gone too: nobody can be asked
            return []

    def close(self) -> None:
        if self._gathering is not None:
            self._gathering.close()
        self._listener.close()
        for group in self._groups.values():
            group.shutdown()
        self._groups.clear()


def _failure(error: RuntimeError, seconds: float, what: str, shared: _Shared, members: Sequence[int]) -> PeerLost:
    """With gloo every error is a RuntimeError; the text says which kind it is."""
    text = str(error).strip()
    if "timed out" in text.lower() or "timeout" in text.lower():
        absent = shared.absent(members)
        whom = f" Not waiting like the others: rank {', '.join(map(str, absent))}." if absent else ""
        return PeerTimeout(
            f"{what} within {seconds:g} s: slow, stopped, or not at the same point of the program.{whom} "
            "If it is only slow, raise cluster.timeout_seconds"
        )
    return PeerLost(f"{what}: the connection is gone ({text[:200]})")


class _Message(Pending):
    """A message under way."""

    def __init__(self, work: Any, shared: _Shared, rank: int, peer: int | None, verb: str) -> None:
        self._work = work
        self._shared = shared
        self._rank = rank
        self._peer = peer
        self._verb = verb

    def wait(self, patience: float = 1.0) -> int:
        shared = self._shared
        seconds = shared.timeout_seconds * patience
        try:
            self._work.wait(timedelta(seconds=seconds))
        except RuntimeError as error:
            peer = "any rank" if self._peer is None else f"rank {self._peer}"
            what = f"rank {self._rank} could not {self._verb} {peer}"
            raise _failure(error, seconds, what, shared, range(shared.size)) from error
        if self._peer is None:
            return int(self._work._source_rank())
        return self._peer

    def cancel(self) -> None:
        # Gloo holds its side of a receive by a weak pointer, so letting go of the work is enough.
        self._work = None


class _Collective(Pending):
    """A native collective under way, over several ranks."""

    def __init__(self, work: Any, shared: _Shared, rank: int, members: Sequence[int]) -> None:
        self._work = work
        self._shared = shared
        self._rank = rank
        self._members = members

    def wait(self, patience: float = 1.0) -> int:
        shared = self._shared
        seconds = shared.timeout_seconds * patience
        try:
            self._work.wait(timedelta(seconds=seconds))
            if torch.cuda.is_available():
                torch.cuda.current_stream().synchronize()
        except RuntimeError as error:
            what = f"rank {self._rank} could not finish an all-reduce with ranks {list(self._members)}"
            raise _failure(error, seconds, what, shared, self._members) from error
        return self._rank
