"""Gradient clipping as a part of the optimizer, so that every strategy clips what it applies.

    optimizer=lambda parameters: clipped(torch.optim.Adam(parameters, lr=0.001), norm=1.0)

Where gradients are averaged in every step their mean is clipped, as in one process with the whole batch; where replicas
train alone for some steps, each one's own gradients are. A server clips what it applies, by the norm of its own part of
the model where several share it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from minga.base.lazy import nn, torch

if TYPE_CHECKING:
    from torch.optim import Optimizer

    _Base = Optimizer
else:
    _Base = object  # the class that it is mixed with is torch's

__all__ = ["Clipping", "clipped", "clipping_of"]


@dataclass(frozen=True, kw_only=True)
class Clipping:
    """How gradients are clipped before they are applied; one of three ways."""

    norm: float | None = None
    """All of them together are shortened to this length, if they are longer."""
    norm_of_each: float | None = None
    """Those of each tensor are."""
    value: float | None = None
    """Each number is brought to between minus this and this."""

    def __post_init__(self) -> None:
        given = {name: value for name, value in vars(self).items() if value is not None}
        if len(given) != 1:
            listed = " and ".join(given) or "nothing"
            raise ValueError(f"clip by one of norm, norm_of_each or value, not by {listed}")
        ((name, value),) = given.items()
        if not value > 0:
            raise ValueError(f"{name} should be above 0, not {value}")

    def apply(self, parameters: Sequence[nn.Parameter]) -> None:
        """Change their gradients in place."""
        if self.value is not None:
            nn.utils.clip_grad_value_(parameters, self.value)
        elif self.norm is not None:
            nn.utils.clip_grad_norm_(parameters, self.norm)
        elif self.norm_of_each is not None:
            for parameter in parameters:
                nn.utils.clip_grad_norm_(parameter, self.norm_of_each)


def clipped(
    optimizer: Optimizer, *, norm: float | None = None, norm_of_each: float | None = None, value: float | None = None
) -> Optimizer:
    """The same optimizer, which from now on clips gradients before it applies them."""
    kind = type(optimizer)
    clipping = Clipping(norm=norm, norm_of_each=norm_of_each, value=value)
    if isinstance(optimizer, _Clipped):
        raise ValueError(f"this {kind.__name__} clips gradients already, by {optimizer.clipping}")
    optimizer.__class__ = type(f"Clipped{kind.__name__}", (_Clipped, kind), {})
    assert isinstance(optimizer, _Clipped)
    optimizer.clipping, optimizer.unclipped = clipping, kind
    return optimizer


def clipping_of(optimizer: Optimizer) -> tuple[type[Optimizer], Clipping | None]:
    """The optimizer's class as it was without clipping, and how it clips."""
    if isinstance(optimizer, _Clipped):
        return optimizer.unclipped, optimizer.clipping
    return type(optimizer), None


class _Clipped(_Base):
    """What an optimizer's class is mixed with."""

    clipping: Clipping
    unclipped: type[Optimizer]

    def step(self, closure: Callable[[], float] | None = None) -> Any:
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self.clipping.apply([parameter for group in self.param_groups for parameter in group["params"]])
        super().step()
        return loss
