"""From a run back to Keras.

    model = minga.keras.load("runs/20260101-120000-mine-ring-2")       # compiled, with the trained weights
    minga.keras.save("runs/20260101-120000-mine-ring-2", "mine.keras")
    keras.saving.load_model("mine.keras")                              # on any backend of Keras, safe_mode as it is

Weights are read from safetensors and written as Keras writes them (JSON and HDF5): nothing in either is code.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from minga.errors import ConfigError
from minga.experiment import load as load_experiment
from minga.keras.making import Maker
from minga.keras_parts import import_keras, is_keras_model, is_seed, named_variables
from minga.workload import load_workload

__all__ = ["load", "save"]


def load(run: str | Path, model: Any = None) -> Any:
    """The model that a run has trained; `model`: put the weights into this one, instead of making it anew."""
    import_keras()
    directory = Path(run).expanduser()
    file = directory / "model.safetensors"
    if not file.is_file():
        raise ConfigError(f"{directory} has no model.safetensors: it is no directory of a run, or of an unfinished one")
    try:
        tensors = load_file(file)
    except SafetensorError as error:
        raise ConfigError(f"{file} can't be read: {error}") from None
    if model is None:
        experiment = load_experiment(directory / "experiment.toml")
        maker = load_workload(experiment.workload, experiment.data).model
        if not isinstance(maker, Maker):
            raise ConfigError(f"{directory} is a run of {experiment.workload}, which is no Keras model")
        model = maker.compiled()
    elif not is_keras_model(model):
        raise ConfigError(f"a {type(model).__name__} is no Keras model to load weights into; give a keras.Model")
    elif not model.built:
        raise ConfigError(f"the model {model.name!r} has no weights yet; call it on a sample, or build() it, first")
    own = named_variables(model)
    assert own is not None
    for variable, tensor in _matched(directory, own, tensors):
        with torch.no_grad():
            variable.copy_(tensor)
    return model


def save(run: str | Path, path: str | Path, model: Any = None) -> Path:
    """Write what a run has trained as a `.keras` file; its path."""
    target = Path(path).expanduser()
    if target.suffix != ".keras":
        raise ConfigError(f"{target.name!r} should end with .keras, the format that Keras reads without running code")
    loaded = load(run, model)
    if loaded.optimizer is not None and not loaded.optimizer.built:
        # Keras expects an optimizer's variables in the file, where the model is compiled with one; these are new ones.
        loaded.optimizer.build(loaded.trainable_variables)
    try:
        loaded.save(target)
    except OSError as error:
        raise ConfigError(f"can't write {target} ({error.strerror or error}); choose another place") from None
    return target


def _matched(directory: Path, own: dict[str, Tensor], given: dict[str, Tensor]) -> list[tuple[Tensor, Tensor]]:
    """Variables and their values, by path."""
    # Seeds are where they were when training ended, and a model that predicts draws nothing.
    wanted = {name: tensor for name, tensor in own.items() if not is_seed(name)}
    found = {name: tensor for name, tensor in given.items() if not is_seed(name)}
    if wanted.keys() != found.keys():
        raise ConfigError(
            f"the model of {directory} has other variables than this one: {_some(found, wanted)} are only in the run, "
            f"{_some(wanted, found)} only here; give the model of the same file, with the same names of layers"
        )
    for name, tensor in wanted.items():
        if tensor.shape != found[name].shape:
            raise ConfigError(f"{name} is {tuple(found[name].shape)} in {directory}, but {tuple(tensor.shape)} here")
    return [(tensor, found[name]) for name, tensor in wanted.items()]


def _some(names: dict[str, Tensor], without: dict[str, Tensor]) -> str:
    only = [name for name in names if name not in without]
    return ", ".join(only[:3]) + (" ..." if len(only) > 3 else "") if only else "none"
