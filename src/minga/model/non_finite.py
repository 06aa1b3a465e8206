"""Non-finite values (NaN, infinities) in losses and gradients are found here; `Replica.update` leaves such a step out.

    if not all_finite(gradients):
        print(find_non_finite(layout.places, gradients))     # nan in the gradient of 3.weight

A rank with such values sends them on, in whatever form its gradients travel; so their mean is not finite either, and
every rank that averages with it leaves out the step, without another message. Where each rank has steps of its own, it
alone leaves them out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from minga.base.lazy import Tensor, torch
from minga.errors import DivergedError, PeerDiverged
from minga.model.layout import Place

__all__ = ["NonFinite", "NonFiniteSteps", "all_finite", "find_non_finite"]


@dataclass(frozen=True)
class NonFinite:
    """What was found."""

    layer: str | None
    """Whose gradient it is in; None: it is the loss."""
    value: float

    def __str__(self) -> str:
        return f"the loss is {self.value}" if self.layer is None else f"{self.value} in the gradient of {self.layer}"


def all_finite(vector: Tensor) -> bool:
    """Whether there is no NaN and no infinity; one pass over the vector, as a sum shows them."""
    total = vector.sum(dtype=torch.float32 if vector.dtype in (torch.float16, torch.bfloat16) else None)
    if math.isfinite(total.item()):
        return True
    # Sums of very large numbers may overflow, too.
    return bool(torch.isfinite(vector).all())


def find_non_finite(places: Sequence[Place], vector: Tensor, start: int = 0) -> NonFinite:
    """The last layer with a NaN or an infinity, in a part of the gradients that begins at `start`.

    Backward goes from the last layer to the first, and takes it along: the last is nearest to its origin.
    """
    for place in reversed(places):
        values = vector[place.start - start : place.stop - start]
        wrong = values[~torch.isfinite(values)]
        if len(wrong):
            return NonFinite(place.name, float(wrong[0]))
    raise AssertionError("all of them are finite")


class NonFiniteSteps:
    """Counts steps in a row that were left out; too many end the run."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.in_a_row = 0

    def stepped(self, *, rank: int, step: int, found: NonFinite | None, skipped: bool, rates: Sequence[float]) -> bool:
        """After each step of a rank: whether it counts; raises `DivergedError` where it is enough."""
        good = found is None and not skipped
        self.in_a_row = 0 if good else self.in_a_row + 1
        if self.in_a_row < self.limit or good:
            return good
        if found is None:
            raise PeerDiverged(
                f"rank {rank} had to leave out {self.in_a_row} steps in a row for another rank's non-finite values"
            )
        listed = ", ".join(f"{rate:g}" for rate in rates)
        raise DivergedError(
            f"{found} on rank {rank} at step {step}, and none of {self.in_a_row} steps in a row could be used. "
            f"Lower the learning rate (now {listed}) or look for bad values in the data"
        )
