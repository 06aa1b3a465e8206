"""Processes that read and shape samples beside a rank, for data sets whose samples take computing.

    readers = ReaderProcesses(dataset, 2)                    # before this process has threads
    batch = readers.read(torch.tensor([5, 900, 17]), seed=3)

They are copies of this process, so that a data set may be anything, also from a file of the user's. A batch comes back
in memory that both sides see; nothing is pickled. Which samples are read, and when, is decided by who asks: a reader
that is killed costs speed, never a sample. Random numbers of a batch are decided by its seed, whoever reads it.
"""

from __future__ import annotations

import json
import logging
import mmap
import os
import queue
import random
import signal
import sys
import tempfile
import threading
import traceback
import weakref
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from multiprocessing.reduction import recv_handle, send_handle
from typing import Any, NoReturn

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from minga.data.batches import fetch
from minga.errors import DataError, WorkloadError

__all__ = ["ReaderProcesses"]

_LOG = logging.getLogger("minga.data")
_CPU = torch.device("cpu")
_ALIGNMENT = 64
_HAS_MEMORY_FILES = hasattr(os, "memfd_create")


class ReaderProcesses:
    """Some processes, each of which reads a batch at a time; any number of threads may ask."""

    def __init__(self, dataset: Dataset[Any], count: int) -> None:
        self._dataset = dataset
        self._free: queue.SimpleQueue[_ReaderProcess | None] = queue.SimpleQueue()
        self._all: list[_ReaderProcess] = []
        for _ in range(count):
            reader = _ReaderProcess(dataset, [each.line for each in self._all])
            self._all.append(reader)
            self._free.put(reader)
        self._lock = threading.Lock()
        weakref.finalize(self, _end, self._all)

    @property
    def pids(self) -> list[int]:
        return [reader.pid for reader in self._all if reader.alive]

    def read(self, indices: Tensor, seed: int) -> Any:
        """The samples at `indices` as one batch, on the CPU."""
        while (reader := self._free.get()) is not None:
            if not reader.alive:
                continue
            try:
                return reader.ask(indices, seed)
            except OSError as error:
                self._lost(reader, error)
            finally:
                if reader.alive:
                    self._free.put(reader)
        self._free.put(None)  # for whoever asks after us
        # By itself, one batch at a time; without the seed, since the random numbers here are the model's.
        with self._lock:
            return fetch(self._dataset, indices, _CPU)

    def close(self) -> None:
        """End them; whoever asks from now on reads by himself."""
        _end(self._all)
        self._free.put(None)

    def _lost(self, reader: _ReaderProcess, error: OSError) -> None:
        reader.end()
        alive = len(self.pids)
        rest = f"others that go on: {alive}" if alive else "the rank reads by itself from now on"
        _LOG.warning("reader process %d was lost (%s); %s", reader.pid, error, rest)
        if not alive:
            self._free.put(None)


def _end(readers: list[_ReaderProcess]) -> None:
    for reader in readers:
        reader.end()


class _ReaderProcess:
    """One process, as the rank sees it."""

    def __init__(self, dataset: Dataset[Any], others: list[Connection]) -> None:
        self.line, theirs = Pipe()
        self.alive = True
        for stream in (sys.stdout, sys.stderr):
            stream.flush()  # or both would write what waits
        self.pid = os.fork()
        if self.pid == 0:
            # With copies of these open, readers would not hear that the rank is gone.
            for line in (self.line, *others):
                line.close()
            _serve(dataset, theirs)
        theirs.close()

    def ask(self, indices: Tensor, seed: int) -> Any:
        """`OSError` if it has died."""
        try:
            self.line.send_bytes(json.dumps([seed, indices.tolist()]).encode())
            answer = json.loads(self.line.recv_bytes())
            if "error" in answer:
                raise (DataError if answer["of_the_data"] else WorkloadError)(answer["error"])
            descriptor = recv_handle(self.line)
        except EOFError:
            raise ConnectionResetError("it has ended") from None
        with os.fdopen(descriptor, "rb+") as file:
            size = os.fstat(file.fileno()).st_size
            # The map lives as long as a tensor over it does.
            memory = mmap.mmap(file.fileno(), size) if size else mmap.mmap(-1, 1)
        return _unpack(answer["batch"], memory)

    def end(self) -> None:
        if self.alive:
            self.alive = False
            self.line.close()
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)


# --- in the process that reads -------------------------------------------------------------------------------------


def _serve(dataset: Dataset[Any], line: Connection) -> NoReturn:
    """Read what is asked for until the rank is gone; `os._exit`, since this is a copy of the rank's stack."""
    code = 1
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever started the run ends it
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        torch.set_num_threads(1)
        while True:
            try:
                seed, indices = json.loads(line.recv_bytes())
            except EOFError:
                code = 0
                break
            _answer(line, dataset, torch.tensor(indices, dtype=torch.int64), seed)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def _answer(line: Connection, dataset: Dataset[Any], indices: Tensor, seed: int) -> None:
    tensors: list[Tensor] = []
    try:
        tree = _pack(_read(dataset, indices, seed), tensors)
    except Exception as error:
        of_the_data = isinstance(error, DataError)
        text = str(error) if of_the_data else f"a sample can't be read: {error!r}\n{traceback.format_exc().rstrip()}"
        line.send_bytes(json.dumps({"error": text, "of_the_data": of_the_data}).encode())
        return
    with os.fdopen(os.memfd_create("minga-batch"), "rb+") if _HAS_MEMORY_FILES else tempfile.TemporaryFile() as file:
        for tensor in tensors:
            file.write(b"\0" * (-file.tell() % _ALIGNMENT))
            file.write(tensor.flatten().view(torch.uint8).numpy().data)
        file.flush()
        line.send_bytes(json.dumps({"batch": tree}).encode())
        send_handle(line, file.fileno(), os.getppid())


def _read(dataset: Dataset[Any], indices: Tensor, seed: int) -> Any:
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed % (1 << 32))
    return fetch(dataset, indices, _CPU)


# --- what goes between them ----------------------------------------------------------------------------------------


def _pack(value: Any, tensors: list[Tensor]) -> Any:
    """A batch as JSON, its tensors apart."""
    if isinstance(value, Tensor):
        tensor = value.detach().contiguous()
        at = sum(each.nbytes + (-each.nbytes % _ALIGNMENT) for each in tensors)
        tensors.append(tensor)
        return {"tensor": str(tensor.dtype).removeprefix("torch."), "shape": list(tensor.shape), "at": at}
    if value is None or isinstance(value, bool | int | float | str):
        return {"value": value}
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {"dict": {key: _pack(item, tensors) for key, item in value.items()}}
    if type(value) in (list, tuple):
        return {type(value).__name__: [_pack(item, tensors) for item in value]}
    raise TypeError(
        f"a batch with a {type(value).__name__} in it can't come from reader processes; use tensors, numbers, strings, "
        "lists, tuples and dicts, or training.readers=0"
    )


def _unpack(tree: Any, memory: mmap.mmap) -> Any:
    if "value" in tree:
        return tree["value"]
    if "dict" in tree:
        return {key: _unpack(item, memory) for key, item in tree["dict"].items()}
    if "list" in tree:
        return [_unpack(item, memory) for item in tree["list"]]
    if "tuple" in tree:
        return tuple(_unpack(item, memory) for item in tree["tuple"])
    kind, shape = getattr(torch, tree["tensor"]), tree["shape"]
    count = int(np.prod(shape, dtype=np.int64))
    if not count:
        return torch.empty(shape, dtype=kind)
    return torch.frombuffer(memory, dtype=kind, count=count, offset=tree["at"]).view(shape)
