"""A user's DataLoader, shared between ranks: each sample once per epoch, each rank its part."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from torch.utils.data import DataLoader, IterableDataset, RandomSampler, Sampler, SequentialSampler

from minga.data.order import Order, Share
from minga.errors import WorkloadError

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
        taking: Callable[[Share, int], None],
        without_samples: Callable[[], None],
    ) -> None:
        """`taking` hears of every share before its batch is used; `without_samples` stands in for an empty one."""
        self._batch = _check(loader)
        self._taking = taking
        self._without_samples = without_samples
        shuffled = isinstance(loader.sampler, RandomSampler)
        self.order = Order(len(loader.dataset), seed, shuffle=shuffled)  # type: ignore[arg-type]
        self._sampler = _ShareSampler(self.order, rank, workers, self._batch, loader.drop_last)
        self.dataset = loader.dataset
        self._loader: DataLoader[Any] = DataLoader(
            loader.dataset,
            batch_sampler=self._sampler,
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

    def __len__(self) -> int:
        return len(self._sampler)

    def __iter__(self) -> Iterator[Any]:
        shares = self._sampler.shares
        shares.clear()
        for batch in self._loader:
            self._taking(shares.popleft(), self._batch)
            yield batch
        while shares:  # the last batch was too short for this rank to get a sample
            self._taking(shares.popleft(), self._batch)
            self._without_samples()


class _ShareSampler(Sampler[list[int]]):
    """The indices of one rank's batches; `shares` has those that were handed out and not yet used."""

    def __init__(self, order: Order, rank: int, workers: Callable[[], int], batch: int, drop_last: bool) -> None:
        self._order = order
        self._rank = rank
        self._workers = workers
        self._batch = batch
        self._drop_last = drop_last
        self.shares: deque[Share] = deque()

    def __len__(self) -> int:
        together = self._workers() * self._batch
        return self._order.samples // together if self._drop_last else -(-self._order.samples // together)

    def __iter__(self) -> Iterator[list[int]]:
        order = self._order
        if order.offset:  # the loop before this one was left by a break
            order.next_epoch()
        epoch = order.epoch
        while order.epoch == epoch:
            workers = self._workers()
            if self._drop_last and order.samples - order.offset < workers * self._batch:
                order.next_epoch()
                return
            share = order.take(self._rank, workers, self._batch)
            self.shares.append(share)
            if len(share.indices):
                yield share.indices.tolist()


def _check(loader: DataLoader[Any]) -> int:
    """The batch size of a loader that can be shared."""
    if isinstance(loader.dataset, IterableDataset):
        raise WorkloadError("the loader's data set is a stream; give run.prepare a loader over a map-style data set")
    if loader.batch_size is None:
        raise WorkloadError(
            "the loader has a batch sampler of its own; give batch_size instead, so that it can be shared"
        )
    if not isinstance(loader.sampler, RandomSampler | SequentialSampler):
        raise WorkloadError(
            f"the loader's {type(loader.sampler).__name__} can't be shared between ranks; use shuffle=True or False"
        )
    sampler = loader.sampler
    if isinstance(sampler, RandomSampler) and (sampler.replacement or sampler.num_samples != len(loader.dataset)):  # type: ignore[arg-type]
        raise WorkloadError("the loader's sampler draws samples more or less than once; use plain shuffle=True")
    return loader.batch_size
