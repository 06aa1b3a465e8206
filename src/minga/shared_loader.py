"""A user's DataLoader, shared between ranks: each sample once per epoch, each rank its part."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from torch.utils.data import DataLoader, IterableDataset, RandomSampler, SequentialSampler

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
        self._drop_last = loader.drop_last
        self._rank = rank
        self._workers = workers
        self._taking = taking
        self._without_samples = without_samples
        shuffled = isinstance(loader.sampler, RandomSampler)
        self.order = Order(len(loader.dataset), seed, shuffle=shuffled)  # type: ignore[arg-type]
        self._shares: deque[Share] = deque()
        self.dataset = loader.dataset
        self._loader: DataLoader[Any] = DataLoader(
            loader.dataset,
            batch_sampler=self,
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
        self._iterating = False

    def __len__(self) -> int:
        together = self._workers() * self._batch
        samples = self.order.samples
        return samples // together if self._drop_last else -(-samples // together)

    def __iter__(self) -> Iterator[Any]:
        # One object is two things: for the user the loader, for torch's DataLoader the sampler of batches.
        return self._sample() if self._iterating else self._batches()

    def _batches(self) -> Iterator[Any]:
        self._shares.clear()
        self._iterating = True
        try:
            batches = iter(self._loader)
        finally:
            self._iterating = False
        for batch in batches:
            self._taking(self._shares.popleft(), self._batch)
            yield batch
        for share in self._shares:  # the last batch was too short for this rank to get a sample
            self._taking(share, self._batch)
            self._without_samples()
        self._shares.clear()

    def _sample(self) -> Iterator[list[int]]:
        epoch = self.order.epoch
        while self.order.epoch == epoch:
            workers = self._workers()
            if self._drop_last and self.order.samples - self.order.offset < workers * self._batch:
                self.order.next_epoch()
                return
            share = self.order.take(self._rank, workers, self._batch)
            self._shares.append(share)
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
    return loader.batch_size
