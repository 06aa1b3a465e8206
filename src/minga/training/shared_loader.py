"""A user's DataLoader, shared between ranks: each sample once per epoch, each rank its part."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from torch.utils.data import DataLoader, RandomSampler, SequentialSampler

from minga.data.order import Order, Share
from minga.data.stream import StreamedOrder, is_stream
from minga.errors import WorkloadError
from minga.training.train_state import order_of

__all__ = ["SharedLoader"]


class SharedLoader:
    """Yields this rank's batches, with the loader's own collating, readers and batch size (which is per rank)."""

    def __init__(
        self,
        loader: DataLoader[Any],
        *,
        seed: int,
        rank: int,
        workers: Callable[[], int],
        taking: Callable[[Share], None],
    ) -> None:
        """`taking` is called with each share before its batch is used; one without samples has no batch."""
        self.batch = _check(loader)
        self.dataset = loader.dataset
        self.order = order = order_of(loader.dataset, seed, shuffle=isinstance(loader.sampler, RandomSampler))
        self._taking = taking
        self._sampler = sampler = _ShareSampler(order, rank, workers, self.batch, loader.drop_last)
        self._batches: Callable[[], Iterable[Any]]
        if isinstance(order, StreamedOrder):  # read in this process
            self._batches = lambda: (loader.collate_fn(order.read(sampler.shares[-1])) for _ in sampler)
            return
        indexed = DataLoader(
            loader.dataset,
            batch_sampler=sampler,
            num_workers=loader.num_workers,
            collate_fn=loader.collate_fn,
            pin_memory=loader.pin_memory,
            timeout=loader.timeout,
            worker_init_fn=loader.worker_init_fn,
            multiprocessing_context=loader.multiprocessing_context,
            generator=loader.generator,
            prefetch_factor=loader.prefetch_factor,
            persistent_workers=loader.persistent_workers,
        )
        self._batches = lambda: indexed

    def __len__(self) -> int:
        return len(self._sampler)

    def __iter__(self) -> Iterator[Any]:
        shares = self._sampler.shares
        shares.clear()
        for batch in self._batches():
            self._taking(shares.popleft())
            yield batch
        while shares:  # the last batch was too short for this rank to get a sample
            self._taking(shares.popleft())


@dataclass
class _ShareSampler:
    """The indices of one rank's batches."""

    order: Order
    rank: int
    workers: Callable[[], int]
    batch: int
    drop_last: bool
    shares: deque[Share] = field(default_factory=deque)
    """Those that were handed out and not yet used."""

    def __len__(self) -> int:
        together, samples = self.workers() * self.batch, self.order.samples
        if samples is None:
            raise TypeError("a stream without a length has no number of batches")
        return samples // together if self.drop_last else -(-samples // together)

    def __iter__(self) -> Iterator[list[int]]:
        order = self.order
        if order.offset:  # the loop before this one was left by a break
            order.next_epoch()
        epoch = order.epoch
        while order.epoch == epoch:
            workers = self.workers()
            if self.drop_last and order.left(workers * self.batch) < workers * self.batch:
                order.next_epoch()
                return
            share = order.take(self.rank, workers, self.batch)
            self.shares.append(share)
            if len(share.indices):
                yield share.indices.tolist()


def _check(loader: DataLoader[Any]) -> int:
    """The batch size of a loader that can be shared."""
    if loader.batch_size is None:
        raise WorkloadError(
            "the loader has no batch_size, or batches of its own; give it one, so that it can be shared"
        )
    if is_stream(loader.dataset):
        if loader.num_workers:
            raise WorkloadError(
                f"the loader's data set is a stream, which each rank reads in one process: use num_workers=0, not "
                f"{loader.num_workers}"
            )
        return loader.batch_size
    if not isinstance(loader.sampler, RandomSampler | SequentialSampler):
        raise WorkloadError(
            f"the loader's {type(loader.sampler).__name__} can't be shared between ranks; use shuffle=True or False"
        )
    sampler = loader.sampler
    if isinstance(sampler, RandomSampler) and (sampler.replacement or sampler.num_samples != len(loader.dataset)):  # type: ignore[arg-type]
        raise WorkloadError("the loader's sampler draws samples more or less than once; use plain shuffle=True")
    return loader.batch_size
