"""A server's part of the parameters, and the updates that are applied to it.

update = Update((Push("node-0 5f3a", 17, 17, 1.0),), rates, (gradients,))
shard.apply(update)                              # the same bits every time, live or from a log
update.without({("node-0 5f3a", 17)})            # None: nothing is left of it
"""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import NamedTuple

from minga.base.lazy import Tensor, torch
from minga.model.replica import Replica
from minga.model.sliced_optimizer import Piece

__all__ = ["Key", "Push", "Shard", "Update"]

Key = tuple[str, int]
"""Identifies a push: who sent it, and which of its pushes it is."""


class Push(NamedTuple):
    """One worker's gradients of one step."""

    member: str
    """Id and incarnation of the worker: a process that was started again is another one."""
    number: int
    """Which of its pushes, counted from 1 for as long as its process lives."""
    step: int
    share: float
    """What it counts, as a share of a full round of all workers' gradients; not above 0 where it is left out."""

    @property
    def key(self) -> Key:
        return self.member, self.number


@dataclass(frozen=True)
class Update:
    """What a server applies at once."""

    pushes: tuple[Push, ...]
    learning_rates: tuple[float, ...]
    gradients: tuple[Tensor, ...]
    """One for each push that counts, in their order, or (`together`) their mean; none where nothing counts."""
    together: bool = False

    @property
    def counted(self) -> list[Push]:
        return [push for push in self.pushes if push.share > 0]  # false also for NaN

    def without(self, undone: AbstractSet[Key]) -> Update | None:
        """What is left of it without some pushes. Of a mean nothing is left when one of its parts is not wanted."""
        pushes = tuple(push for push in self.pushes if push.key not in undone)
        if len(pushes) == len(self.pushes):
            return self
        if not pushes or (self.together and len(self.counted) > 1):
            return None
        pairs = zip(self.counted, self.gradients, strict=True) if self.gradients else ()
        gradients = tuple(gradient for push, gradient in pairs if push.key not in undone)
        return replace(self, pushes=pushes, gradients=gradients)


class Shard:
    """A part of the parameters on a server, with the optimizer's state for it."""

    def __init__(self, replica: Replica, part: slice) -> None:
        """A copy of that part of a replica, with an optimizer that goes on from the replica's state."""
        self.part = part
        self.parameters = replica.parameters[part].clone()
        self.gradients = torch.zeros_like(self.parameters)
        self.learning_rates = list(replica.learning_rates)
        """One for each parameter group; workers notify the server when theirs change."""
        self._optimizer = replica.optimizer_of(part, self.parameters, self.gradients)

    def apply(self, update: Update) -> bool:
        """One update of the parameters from all gradients in it; False if there is nothing that counts."""
        counted = update.counted
        total = sum(push.share for push in counted)
        if not counted or not update.gradients:
            return False
        self.learning_rates = list(update.learning_rates)
        if update.together:
            if update.gradients[0] is not self.gradients:
                self.gradients.copy_(update.gradients[0])
        else:
            self.gradients.zero_()
            for push, gradients in zip(counted, update.gradients, strict=True):
                self.gradients.add_(gradients, alpha=push.share / total)
        self.update(share=total)
        return True

    def update(self, share: float = 1.0) -> None:
        """Apply `gradients`, which stand for this share of a full round of all workers' gradients.

        Their learning rate is reduced so that a round of such updates moves the parameters as far as one update
        with the mean would: to `share` of it for SGD, to its square root for Adam and its relatives, which divide
        by the size of the gradients and so already take smaller steps where these are noisier (Malladi et al.,
        arXiv:2205.10287).
        """
        self._optimizer.step(self.learning_rates, self._optimizer.scale_of_share(share), decay=share)

    def optimizer_state(self) -> list[Piece]:
        return self._optimizer.state()

    def go_to(self, parameters: Tensor, pieces: Sequence[Piece]) -> None:
        """Have these parameters and this optimizer's state, and nothing of what there was."""
        self.parameters.copy_(parameters)
        self._optimizer.forget()
        self._optimizer.restore(pieces)
