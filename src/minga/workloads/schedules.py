"""How learning rates change on the way: factors as a function of progress, 0 to 1."""

from __future__ import annotations

import math

__all__ = ["warm_up_and_fall"]

_WARM_UP = 0.05
_LEAST = 0.01


def warm_up_and_fall(progress: float) -> float:
    """Up to the full learning rate in the first twentieth, then down along a cosine to a hundredth of it."""
    if progress < _WARM_UP:
        return max(_LEAST, progress / _WARM_UP)
    done = (progress - _WARM_UP) / (1 - _WARM_UP)
    return _LEAST + (1 - _LEAST) * (1 + math.cos(math.pi * done)) / 2
