"""New Keras models for the ranks of a run: from a function, or from a model that there is already."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy
import torch
from torch import nn

from minga.errors import WorkloadError
from minga.model.keras_parts import import_keras, is_keras_model

__all__ = ["Copies", "Maker", "New"]

Inputs = Callable[[], Any]


class New:
    """What a function makes, with initial weights from torch's seed and with the same names every time.

    `inputs` gives a sample, for models that are built when they see one.
    """

    def __init__(self, function: Callable[[], Any], inputs: Inputs) -> None:
        self._function = function
        self._inputs = inputs

    def __call__(self) -> nn.Module:
        with _anew():
            model = self._function()
            if not is_keras_model(model):
                name = getattr(self._function, "__name__", "the function")
                raise WorkloadError(f"{name} gives a {type(model).__name__}, not a keras.Model; return the model")
            _build(model, self._inputs)
        _tell_decay(getattr(model, "optimizer", None), model.variables, model.variables)
        return model  # type: ignore[no-any-return]

    def compiled(self) -> Any:
        """A model with all that compile() was given."""
        return self()


class Copies:
    """Copies of a model with the weights that it has, as fit() would go on from them."""

    def __init__(self, model: Any, inputs: Inputs) -> None:
        _build(model, inputs)
        self._model = model
        self._inputs = inputs
        self._weights = [numpy.array(weight) for weight in model.get_weights()]

    def __call__(self) -> nn.Module:
        keras = import_keras()
        try:
            with _anew():
                copied = keras.models.clone_model(self._model)
                _build(copied, self._inputs)
            copied.set_weights(self._weights)
        except (NotImplementedError, TypeError, ValueError) as error:
            raise WorkloadError(
                f"the model {self._model.name!r} can't be copied ({str(error).splitlines()[0]}); give a function that "
                "makes it instead of the model"
            ) from None
        if type(copied) is not type(self._model):
            own, other = type(self._model).__name__, type(copied).__name__
            raise WorkloadError(
                f"the model {self._model.name!r} is a {own}, and Keras copies it as a {other}, without what {own} "
                "adds; give a function that makes it instead of the model"
            )
        # What else it was compiled with, the workload has already. No public name has the weights as they were given.
        _tell_decay(self._model.optimizer, self._model.variables, copied.variables)
        copied.compile(loss=self._model.loss, loss_weights=self._model._compile_loss._user_loss_weights)
        return copied  # type: ignore[no-any-return]

    def compiled(self) -> Any:
        """A model with all that compile() was given."""
        return self._model


Maker = New | Copies
"""What makes built and compiled models."""


def _tell_decay(optimizer: Any, variables: Sequence[Any], of: Sequence[Any]) -> None:
    """Have the tensors of a model, or of its copy, know what `exclude_from_weight_decay` says of them.

    The optimizer that is made for them sees neither names nor Keras' variables. No public name has the exclusions.
    """
    if getattr(optimizer, "weight_decay", None):
        for variable, own in zip(variables, of, strict=True):
            own.value.decays = optimizer._use_weight_decay(variable)


def _build(model: Any, inputs: Inputs) -> None:
    """Some models know the shapes of their weights only when they have seen a sample."""
    if not model.built:
        with torch.no_grad():
            model(inputs())


@contextmanager
def _anew() -> Iterator[None]:
    """The next model is the same every time: its names, and what follows from torch's seed.

    Keras takes the seeds of initial weights from Python's random numbers, which are as before afterwards.
    """
    # Keras numbers layers ("dense_1") over all models of a process. Ranks and runs know parameters by their names.
    import_keras().utils.clear_session(free_memory=False)
    before, seed = (random.getstate(), numpy.random.get_state()), torch.initial_seed()
    random.seed(seed)
    numpy.random.seed(seed % 2**32)
    try:
        with torch.random.fork_rng(devices=[]):
            yield
    finally:
        random.setstate(before[0])
        numpy.random.set_state(before[1])
