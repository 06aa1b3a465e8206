"""Reader processes give the samples that reading directly gives, whatever becomes of them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from typing import Any

import psutil
import pytest
import torch
from torch.utils.data import Dataset

from minga.data.batches import fetch
from minga.data.reader_processes import ReaderProcesses
from minga.errors import DataError, WorkloadError

CPU = torch.device("cpu")


class Samples(Dataset[Any]):
    """Several types and shapes in one sample; who read it, and a random number."""

    def __len__(self) -> int:
        return 100

    def __getitem__(self, index: int) -> Any:
        if index == 13:
            raise DataError("sample 13 is damaged")
        if index == 14:
            raise ValueError("no such thing")
        return {
            "picture": torch.full((3, 5), index, dtype=torch.uint8),
            "pair": (torch.tensor(index / 2), [index, torch.tensor(index % 2 == 0)]),
            "name": f"sample {index}",
            "chance": torch.rand(()),
            "reader": os.getpid(),
        }


@pytest.fixture
def readers() -> Iterator[ReaderProcesses]:
    made = ReaderProcesses(Samples(), 2)
    yield made
    made.close()


def same(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor):
        return one.dtype == other.dtype and torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return type(one) is type(other) and all(same(a, b) for a, b in zip(one, other, strict=True))
    return bool(one == other)


def without_chance(batch: Any) -> Any:
    return {key: value for key, value in batch.items() if key not in ("chance", "reader")}


def test_a_batch_is_what_reading_directly_gives(readers: ReaderProcesses) -> None:
    for start in range(20, 60, 7):
        indices = torch.arange(start, start + 7).flip(0)
        batch = readers.read(indices, seed=1)
        assert same(without_chance(batch), without_chance(fetch(Samples(), indices, CPU)))
        assert os.getpid() not in batch["reader"].tolist()
        batch["picture"].zero_()  # it is the rank's own


def test_random_numbers_depend_on_the_seed_not_on_who_reads(readers: ReaderProcesses) -> None:
    drawn = [readers.read(torch.arange(3), seed=seed)["chance"] for seed in (5, 5, 6)]
    assert torch.equal(drawn[0], drawn[1]) and not torch.equal(drawn[0], drawn[2])
    before = torch.get_rng_state()
    readers.read(torch.arange(3), seed=5)
    assert torch.equal(torch.get_rng_state(), before)


def test_threads_are_served_at_once_by_all_of_them(readers: ReaderProcesses) -> None:
    found: list[Any] = []
    threads = [
        threading.Thread(target=lambda at=at: found.append((at, readers.read(torch.tensor([at, at + 1]), 0))))
        for at in range(20, 60)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 40
    assert all(batch["name"] == [f"sample {at}", f"sample {at + 1}"] for at, batch in found)
    assert len({pid for _, batch in found for pid in batch["reader"].tolist()}) == 2


def test_errors_come_back_and_the_reader_goes_on(readers: ReaderProcesses) -> None:
    with pytest.raises(DataError, match="sample 13 is damaged"):
        readers.read(torch.tensor([12, 13]), seed=0)
    with pytest.raises(WorkloadError, match=r"ValueError\('no such thing'\)"):
        readers.read(torch.tensor([14]), seed=0)
    assert len(readers.pids) == 2
    assert readers.read(torch.tensor([1]), seed=0)["name"] == ["sample 1"]


def test_a_killed_reader_costs_no_sample(readers: ReaderProcesses, caplog: pytest.LogCaptureFixture) -> None:
    for left in (1, 0):
        os.kill(readers.pids[0], signal.SIGKILL)
        names = [readers.read(torch.tensor([at]), 0)["name"][0] for at in range(20, 26)]
        assert names == [f"sample {at}" for at in range(20, 26)]
        assert len(readers.pids) == left
    assert caplog.text.count("was lost") == 2 and "the rank reads by itself" in caplog.text


def test_one_that_is_killed_in_the_middle_costs_no_sample() -> None:
    class Slow(Dataset[Any]):
        def __len__(self) -> int:
            return 10

        def __getitem__(self, index: int) -> Any:
            time.sleep(0.2)
            return index

    readers = ReaderProcesses(Slow(), 2)
    found: list[Any] = []
    threads = [
        threading.Thread(target=lambda at=at: found.append(readers.read(torch.tensor([at]), 0))) for at in (3, 4)
    ]
    for thread in threads:
        thread.start()
    time.sleep(0.1)
    for pid in readers.pids:
        os.kill(pid, signal.SIGKILL)
    for thread in threads:
        thread.join()
    assert sorted(batch.item() for batch in found) == [3, 4]
    readers.close()


def test_what_cannot_travel_is_told(readers: ReaderProcesses) -> None:
    class Sets(Dataset[Any]):
        def __getitems__(self, indices: list[int]) -> Any:
            return [{"x": object()} for _ in indices]

        def read_batch(self, indices: torch.Tensor) -> Any:
            return {"x": object()}

    strange = ReaderProcesses(Sets(), 1)
    with pytest.raises(WorkloadError, match=r"a object in it can't come from reader processes.*training.readers=0"):
        strange.read(torch.tensor([1]), 0)
    strange.close()


def test_they_end_with_the_process_that_started_them() -> None:
    program = textwrap.dedent(
        """
        import os, signal, torch
        from torch.utils.data import TensorDataset
        from minga.data.reader_processes import ReaderProcesses
        readers = ReaderProcesses(TensorDataset(torch.arange(10)), 3)
        print(*readers.pids, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
        """
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    pids = [int(word) for word in done.stdout.split()]
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline and any(_lives(pid) for pid in pids):
        time.sleep(0.02)
    assert len(pids) == 3 and not any(_lives(pid) for pid in pids)


def _lives(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
