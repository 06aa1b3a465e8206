"""What a codec remembers from one vector to the next."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from minga.base.lazy import Tensor, torch

__all__ = ["Stream"]


@dataclass
class Stream:
    """The memory of one sender for one kind of vector: its residual, warm starts, random numbers.

    A vector that is sent again and again (the gradients of a bucket, a replica's delta) has a stream of its own
    on every rank. It lives in `replica.state`, so checkpoints have it.
    """

    shapes: tuple[tuple[int, ...], ...]
    """The shapes of the layers that the vector is made of, in order; their sizes add up to its length."""

    seed: int = 0
    """Random choices that all ranks must make alike (which elements, first directions) follow from this and `count`."""

    rank: int = 0
    """Makes those random choices differ between ranks that should (stochastic rounding)."""

    momentum: float = 0.0
    """For momentum correction: the factor that the optimizer has handed over."""

    count: int = 0
    """How many vectors were encoded so far."""

    residual: Tensor | None = None
    """What was not sent yet: it is added to the next vector (error feedback)."""

    velocity: Tensor | None = None
    """For momentum correction: the accumulated gradients."""

    memory: dict[str, Any] = field(default_factory=dict)
    """What else a codec wants to keep, such as PowerSGD's last directions."""

    @classmethod
    def of(
        cls, vector: Tensor, shapes: Sequence[Sequence[int]] | None = None, *, seed: int = 0, rank: int = 0
    ) -> Stream:
        """A stream for vectors like this one; without shapes it counts as a single layer of one dimension."""
        cut = ((vector.numel(),),) if shapes is None else tuple(tuple(shape) for shape in shapes)
        return cls(cut, seed=seed, rank=rank)

    def aside(self) -> Stream:
        """A copy for a vector that must leave no trace in this one, such as a non-finite one."""
        return dataclasses.replace(self, residual=None, velocity=None, memory=dict(self.memory))

    def skip(self, aside: Stream) -> None:
        """Go on as after sending a vector by way of `aside`: with its random choices, but no residual."""
        self.count, self.memory = aside.count, aside.memory

    def shared_generator(self) -> torch.Generator:
        """Random numbers for the vector under way, the same on all ranks."""
        return self._generator(self.seed)

    def own_generator(self) -> torch.Generator:
        """Random numbers for the vector under way, different on each rank."""
        return self._generator(self.seed * 7919 + self.rank + 1)

    def _generator(self, seed: int) -> torch.Generator:
        return torch.Generator().manual_seed((seed * 1_000_003 + self.count) & ((1 << 62) - 1))
