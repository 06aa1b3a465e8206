"""Data as Keras takes it (arrays, channels last) as a data set for Minga."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy
import torch
from torch import Tensor
from torch.utils.data import Dataset, TensorDataset

from minga.errors import WorkloadError
from minga.model.keras_parts import import_keras

__all__ = ["as_dataset", "each_input"]

FORMS = "give (x, y) with arrays as for fit(), or a torch Dataset of (inputs, targets)"


class Samples(Dataset[Any]):
    """Several arrays of inputs, as models with several inputs want them, and one of targets."""

    def __init__(self, inputs: Any, targets: Tensor) -> None:
        self._inputs = inputs
        self._targets = targets

    def __len__(self) -> int:
        return len(self._targets)

    def __getitem__(self, index: int) -> tuple[Any, Tensor]:
        return each_input(self._inputs, lambda tensor: tensor[index]), self._targets[index]


def as_dataset(name: str, data: Any) -> Dataset[Any]:
    """`(x, y)` as a data set; what is one already stays as it is."""
    if isinstance(data, Dataset):
        return data
    if not (isinstance(data, tuple | list) and len(data) == 2):
        what = f"{len(data)} parts" if isinstance(data, tuple | list) else f"a {type(data).__name__}"
        raise WorkloadError(f"{name} is {what}; {FORMS}")
    inputs = each_input(data[0], _tensor)
    parts: list[Tensor] = []
    each_input(inputs, parts.append)
    if isinstance(data[1], Mapping) or (_several(data[1]) and len(data[1]) != len(parts[0])):
        raise WorkloadError(
            f"{name} has {len(data[1])} arrays of targets, as models with several outputs have, and minga translates "
            "models with one; write a minga.Workload whose predict(model, batch) joins them"
        )
    targets = _tensor(data[1])
    if any(len(part) != len(targets) for part in parts):
        lengths = ", ".join(str(len(part)) for part in parts)
        raise WorkloadError(f"{name} has {lengths} inputs and {len(targets)} targets; there should be as many of each")
    if not len(targets):
        raise WorkloadError(f"{name} has no samples; give some{'' if name == 'train' else ', or None for no test'}")
    return TensorDataset(inputs, targets) if isinstance(inputs, Tensor) else Samples(inputs, targets)


def each_input(value: Any, function: Any) -> Any:
    """The function's result for each array of inputs, in the form that the model has them."""
    if isinstance(value, Mapping):
        return {key: function(part) for key, part in value.items()}
    if _several(value):
        return tuple(function(part) for part in value)
    return function(value)


def _several(value: Any) -> bool:
    """Whether these are arrays in a list, not numbers: an array is also a list of its rows."""
    return isinstance(value, tuple | list) and bool(value) and getattr(value[0], "shape", ()) != ()


def _native(array: numpy.ndarray[Any, Any]) -> numpy.ndarray[Any, Any]:
    """In this machine's order of bytes, which torch insists on and files of other machines may not have."""
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def _tensor(value: Any) -> Tensor:
    try:
        tensor = value if isinstance(value, Tensor) else torch.from_numpy(_native(numpy.ascontiguousarray(value)))
    except TypeError:
        raise WorkloadError(f"{type(value).__name__} is no array of numbers; {FORMS}") from None
    # As fit() does: numpy's usual float64 becomes what the model computes with; integers are cast by the model.
    usual = getattr(torch, import_keras().config.floatx())
    return tensor.to(usual) if tensor.is_floating_point() else tensor
