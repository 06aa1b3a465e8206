"""What is trained: model, data, loss, optimizer, metrics, as one plain object.

    workload = Workload(name="mine", model=Net, train=train_set, test=test_set)

A user's file has such an object, or a function that returns one; `minga train my.py:workload` finds it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils.data import Dataset

from minga.data.stream import StreamReader, is_stream
from minga.errors import WorkloadError
from minga.keras_parts import is_keras_model, prefer_torch
from minga.user_files import load_from_file

__all__ = ["Workload", "correct", "load_workload"]


def correct(outputs: Tensor, targets: Tensor) -> Tensor:
    """1 for each sample whose largest output is at the target class, 0 for the others."""
    return (outputs.argmax(dim=-1) == targets).double()


def _model_and_targets(model: nn.Module, batch: Any) -> tuple[Tensor, Tensor]:
    if not (isinstance(batch, list | tuple) and len(batch) == 2):
        what = f"with {len(batch)} parts" if isinstance(batch, list | tuple) else f"of type {type(batch).__name__}"
        raise WorkloadError(f"a batch {what} is not (inputs, targets): give the workload a predict(model, batch)")
    inputs, targets = batch
    return model(inputs), targets


def _sgd(parameters: Iterable[nn.Parameter]) -> Optimizer:
    return torch.optim.SGD(parameters, lr=0.05, momentum=0.9)


@dataclass(frozen=True, kw_only=True)
class Workload:
    """What is trained."""

    name: str
    """For people and for run directories."""

    model: Callable[[], nn.Module]
    """Makes a new model; called once on every rank, after the seed is set."""

    train: Dataset[Any]
    """Map-style: has a length and gives samples by index. A `TensorDataset` is read a batch at a time.

    Or a stream, such as torch's `IterableDataset`: see `minga.data.stream` for what it must keep to.
    """

    test: Dataset[Any] | None = None
    """What accuracy is measured on; None: nothing is evaluated."""

    loss: Callable[[Tensor, Tensor], Tensor] = nn.functional.cross_entropy
    """Of outputs and targets: the mean over the samples."""

    predict: Callable[[nn.Module, Any], tuple[Tensor, Tensor]] = _model_and_targets
    """Outputs and targets of a batch; replace it where a batch is not just (inputs, targets)."""

    optimizer: Callable[[Iterable[nn.Parameter]], Optimizer] = _sgd
    """Makes the optimizer for the model's parameters."""

    metrics: Mapping[str, Callable[[Tensor, Tensor], Tensor]] = field(default_factory=lambda: {"accuracy": correct})
    """Of outputs and targets: one value per sample. They are added up over all ranks and then divided, once."""

    schedule: Callable[[float], float] | None = None
    """Factor on the learning rate as a function of progress, 0 to 1."""

    batch: int = 32
    """Samples of each node in a step, unless the experiment says otherwise."""

    epochs: int = 5
    """Passes over the data, unless the experiment says otherwise."""


def load_workload(reference: str, data: str | None) -> Workload:
    """The workload behind a built-in name or `file.py:name`."""
    # The built-in workloads are users of this module, so they are looked up only when asked for.
    from minga.workloads import built_in

    directory = Path(data).expanduser() if data else None
    if ".py" not in reference:
        return built_in(reference, directory)
    if ":" not in reference:
        reference += ":workload"
    prefer_torch()  # should the file import Keras
    found = named = load_from_file(reference)
    if inspect.isfunction(found):
        parameters = inspect.signature(found).parameters.values()
        needed = [each.name for each in parameters if each.default is each.empty and each.kind is not each.VAR_KEYWORD]
        if set(needed) - {"data"}:
            raise WorkloadError(f"{reference} needs {', '.join(needed)}; a workload's function takes nothing but data")
        found = found(data=directory) if "data" in {each.name for each in parameters} else found()
    if is_keras_model(found):
        from minga.keras import workload_in_file

        found = workload_in_file(reference, named)
    if not isinstance(found, Workload):
        raise WorkloadError(
            f"{reference} is a {type(found).__name__}, not a minga.Workload, a compiled Keras model or a function that "
            "makes one of these"
        )
    _check(found)
    return found


def _check(workload: Workload) -> None:
    for name in ("train", "test"):
        dataset = getattr(workload, name)
        if dataset is None:
            continue
        if is_stream(dataset):
            StreamReader(dataset)  # refuses what can't be read
        elif not hasattr(dataset, "__len__"):
            raise WorkloadError(f"{workload.name}.{name} is a {type(dataset).__name__} without a length; give it one")
        elif len(dataset) == 0:
            raise WorkloadError(f"{workload.name}.{name} is empty; give samples, or None for no test")
    for name in ("batch", "epochs"):
        if getattr(workload, name) < 1:
            raise WorkloadError(f"{workload.name}.{name} should be at least 1, not {getattr(workload, name)}")
