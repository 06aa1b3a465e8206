"""torch, imported when something of it is used: a list of strategies or a TOML file should not wait seconds for it.

    from minga.base.lazy import Tensor, torch     # instead of: import torch; from torch import Tensor

    def decode(...) -> Tensor:
        torch.empty(...)                          # here it is imported, once

For what is read before anything is computed: codecs, collectives, strategies, and what they stand on. There, nothing
may use torch at the level of a module or a class, except `Tensor` in types; a test looks that these import no torch.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

__all__ = ["Tensor", "lazy_module", "nn", "np", "torch"]


def lazy_module(name: str) -> ModuleType:
    """A module that imports the one with this name at the first use of an attribute, and keeps what it found.

    What is kept is an attribute of its own, so that the next use is as quick as with the module itself.
    """
    module = ModuleType(name, f"{name}, imported at the first use")

    def find(attribute: str) -> Any:
        if attribute.startswith("__"):  # tools that look at every module they see should not import it by that
            raise AttributeError(f"{name}, which is imported at the first use, does not show its {attribute}")
        found = getattr(importlib.import_module(name), attribute)
        setattr(module, attribute, found)
        return found

    # In the module itself, not in a class of modules: the interpreter has a quick way for those without a class.
    vars(module)["__getattr__"] = find
    return module


class _TensorType(type):
    def __instancecheck__(cls, value: Any) -> bool:
        return "torch" in sys.modules and isinstance(value, sys.modules["torch"].Tensor)


if TYPE_CHECKING:
    import numpy as np
    import torch as torch
    from torch import Tensor as Tensor
    from torch import nn as nn
else:
    np = lazy_module("numpy")
    torch = lazy_module("torch")
    nn = lazy_module("torch.nn")

    class Tensor(metaclass=_TensorType):
        """Stands for torch's in types, and in `isinstance`, which is slower than torch's own."""
