"""Whose work is in a replica's parameters: what a lost rank had learned since the others merged it is done again.

    progress.begin(step=0, ranks=3)                  # who trains with whom, from here on
    progress.averaged(replica.parameters, range(3))  # said by `all_reduce_mean` when it has averaged them
    progress.merged_steps                            # for each rank, the last of its steps that is in here

Collectives and the code that exchanges deltas write it; algorithms need not. Who merges in another way and says nothing
is taken to have merged nothing: after the loss of a rank its samples are then used again, and none is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from minga.base.lazy import Tensor

__all__ = ["Progress"]


class Progress:
    """The steps that are in a replica's parameters: its own, and those of the ranks that it trains with."""

    def __init__(self, parameters: Tensor, gradients: Tensor) -> None:
        self._parameters = parameters
        self._gradients = gradients
        self._parts: dict[tuple[int, int], list[int]] = {}
        self._start = 0
        self._ranks = 1
        self._groups: list[list[int]] = []
        self._reached: Callable[[], Sequence[int]] | None = None
        self.lockstep = True
        """Whether the other ranks are at this rank's step, so that a collective has met them there."""
        self.step = 0
        """The step under way."""
        self.last_applied_step = 0
        """The last step whose own gradients are in the parameters."""
        self.averaged_gradients = 0
        """How many of the step's gradients are their mean over all ranks by now."""

    def begin(self, step: int, ranks: int, *, lockstep: bool = True) -> None:
        """From here on these ranks train together; all that they had learned before is in the parameters."""
        self._start, self._ranks, self.lockstep = step, ranks, lockstep
        self._groups = [[rank] for rank in range(ranks)]
        self._parts.clear()
        self._reached = None

    def act_in_groups(self, groups: Sequence[Sequence[int]]) -> None:
        """Ranks of a group are one replica, so whoever merges one of them merges them all."""
        self._groups = [list(group) for group in groups]

    def merge(self, steps: int | Sequence[int], part: slice = slice(None)) -> None:
        """A part of the parameters now has the work of all up to a step: one for all, one for each rank or group."""
        each = [steps] * self._ranks if isinstance(steps, int) else list(steps)
        if len(each) == len(self._groups):
            step_of = {rank: step for group, step in zip(self._groups, each, strict=True) for rank in group}
            each = [step_of[rank] for rank in range(self._ranks)]
        if len(each) != self._ranks:
            raise ValueError(
                f"merge() got {len(each)} steps, and {self._ranks} ranks train together: give one step, or one for each"
            )
        start, stop, _ = part.indices(len(self._parameters))
        if (start, stop) == (0, len(self._parameters)):
            known = self._known(slice(start, stop))
            self._parts.clear()
        else:
            known = self._parts.get((start, stop), [self._start] * self._ranks)
        self._parts[start, stop] = [max(pair) for pair in zip(known, each, strict=True)]

    def merge_when_asked(self, steps: Callable[[], Sequence[int]]) -> None:
        """The same, worked out only if somebody wants to know; it takes the place of what was said here before."""
        self._reached = steps

    def merge_ranks(self, ranks: Sequence[int], part: slice = slice(None)) -> None:
        """A part of the parameters now has the work of some ranks up to the step under way."""
        known = self._known(slice(*part.indices(len(self._parameters))[:2]))
        self.merge([self.step if rank in ranks else known[rank] for rank in range(self._ranks)], part)

    def averaged(self, vector: Tensor, ranks: Sequence[int]) -> None:
        """A collective of these ranks has made `vector` their mean."""
        part = _part_of(vector, self._parameters)
        if part is not None and self.lockstep:
            self.merge_ranks([rank for group in self._groups if set(group) & set(ranks) for rank in group], part)
        elif len(ranks) == self._ranks and _part_of(vector, self._gradients) is not None:
            self.averaged_gradients += vector.numel()

    @property
    def merged_steps(self) -> list[int]:
        """For each rank that trains, the last of its steps that is in all of the parameters."""
        if self._reached is not None:
            self.merge(self._reached())
        return self._known(slice(0, len(self._parameters)))

    def _known(self, part: slice) -> list[int]:
        """The least of what is known of the pieces of a part; where nothing is known of one, as in the beginning."""
        at, known = part.start, None
        for (start, stop), steps in sorted(self._parts.items()):
            if stop <= part.start or start >= part.stop:
                continue
            if start > at:
                break
            known = steps if known is None else [min(pair) for pair in zip(known, steps, strict=True)]
            at = max(at, stop)
        if known is None or at < part.stop:
            return [self._start] * self._ranks
        return list(known)


def _part_of(vector: Tensor, whole: Tensor) -> slice | None:
    """Which elements of a flat vector another one is a view of, if it is."""
    if vector.dtype != whole.dtype or vector.device != whole.device or not vector.is_contiguous():
        return None
    offset = vector.data_ptr() - whole.data_ptr()
    start = offset // whole.element_size()
    if offset < 0 or start + vector.numel() > whole.numel():
        return None
    return slice(start, start + vector.numel())
