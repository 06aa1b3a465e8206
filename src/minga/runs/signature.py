"""What goes into a model and what comes out of it: found by looking at two samples, or said by the workload.

workload.describe(workload.model()).inputs     # (TensorSpec(name="inputs", dtype="float32", shape=(1, 8, 8)),)
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Dataset

from minga.data.batches import collate, fetch
from minga.data.stream import StreamReader, is_stream
from minga.errors import WorkloadError

__all__ = [
    "Signature",
    "TensorSpec",
    "inputs_of",
    "samples_alone",
    "specs_of",
    "with_inputs",
]

_CPU = torch.device("cpu")


@dataclass(frozen=True)
class TensorSpec:
    """One tensor of a sample."""

    name: str
    """`inputs` or `outputs`; with a number or a key where there are several."""

    dtype: str
    """As torch calls it, such as float32; str for text."""

    shape: tuple[int | None, ...]
    """Without the batch's dimension; None: it varies from sample to sample."""


@dataclass(frozen=True)
class Signature:
    """What a model takes and gives for a sample."""

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]


def samples_alone(dataset: Dataset[Any], count: int) -> list[Any]:
    """The first samples, each as a batch of one; a stream is opened anew for them."""
    if is_stream(dataset):
        first = list(itertools.islice(StreamReader(dataset).in_turn(), count))
        if not first:
            raise WorkloadError("the stream of samples is empty; give at least one")
        return [collate([sample], _CPU) for sample in first]
    return [fetch(dataset, torch.tensor([at]), _CPU) for at in range(min(count, len(dataset)))]  # type: ignore[arg-type]


def inputs_of(batch: Any) -> Any:
    """The part of a batch that a model is given: the first of two, all but the last of more, `inputs` by name."""
    if isinstance(batch, Mapping):
        return batch.get("inputs", batch)
    if not isinstance(batch, list | tuple):
        return batch
    return batch[0] if len(batch) <= 2 else tuple(batch[:-1])


def with_inputs(batch: Any, inputs: Any) -> Any:
    """The same batch with other inputs."""
    if isinstance(batch, Mapping):
        return {**batch, "inputs": inputs} if "inputs" in batch else inputs
    if not isinstance(batch, list | tuple):
        return inputs
    return (inputs, *batch[1:]) if len(batch) <= 2 else (*inputs, batch[-1])


def specs_of(name: str, values: list[Any]) -> tuple[TensorSpec, ...]:
    """Of what several batches of one sample have in the same place."""
    first = values[0]
    if isinstance(first, Mapping):
        return tuple(spec for key in first for spec in specs_of(str(key), [value[key] for value in values]))
    if isinstance(first, Tensor):
        shapes = [tuple(value.shape[1:]) for value in values]
        if len({len(shape) for shape in shapes}) > 1:
            raise WorkloadError(f"{name} have {len(shapes[0])} dimensions or {len(shapes[1])}; give the signature")
        shape = tuple(sizes[0] if len(set(sizes)) == 1 else None for sizes in zip(*shapes, strict=True))
        return (TensorSpec(name, str(first.dtype).removeprefix("torch."), shape),)
    if isinstance(first, list | tuple) and not (first and isinstance(first[0], str)):
        places = range(len(first))
        return tuple(spec for at in places for spec in specs_of(f"{name}_{at}", [value[at] for value in values]))
    text = isinstance(first, str) or (isinstance(first, list | tuple) and isinstance(first[0], str))
    return (TensorSpec(name, "str" if text else type(first).__name__, ()),)
