"""A model's weights on disk: those that a run has ended with, or any safetensors file with the same names.

take_weights(model, Path("runs/20260101-120000-digits-ring-4"))
take_weights(model, Path("pretrained.safetensors"))
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from safetensors import SafetensorError, safe_open

from minga.base.lazy import Tensor, nn, torch
from minga.errors import ConfigError
from minga.model.keras_parts import is_seed, named_variables

__all__ = ["check_weights", "take_weights", "weights_file"]


def weights_file(place: Path) -> Path:
    """The file with weights at a place that somebody has named: a run's directory, or the file itself."""
    place = place.expanduser()
    if place.is_dir():
        if (place / "model.safetensors").is_file():
            return place / "model.safetensors"
        unfinished = (place / "experiment.toml").is_file()
        why = f"it is not finished (minga train --resume {place} goes on)" if unfinished else "it is no run's directory"
        raise ConfigError(f"{place} has no model.safetensors: {why}")
    if not place.is_file():
        raise ConfigError(f"there is no {place}; give a run's directory or a safetensors file")
    return place


def check_weights(place: Path) -> None:
    """`ConfigError` if there are no weights that can be read; only the names in the file are looked at."""
    file = weights_file(place)
    with _told(file), safe_open(file, framework="pt") as content:
        content.keys()


@contextlib.contextmanager
def _told(file: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, SafetensorError) as error:
        raise ConfigError(f"{file} can't be read: {error}; give a safetensors file") from None


def take_weights(model: nn.Module, place: Path) -> None:
    """Put all weights and buffers into a model; an error, and the model as it was, if they are not exactly its own."""
    from safetensors.torch import load_file

    file = weights_file(place)
    with _told(file):
        given = load_file(file)
    own = {
        name: value
        for name, value in (named_variables(model) or model.state_dict()).items()
        if isinstance(value, Tensor) and not is_seed(name)  # seeds are where they were when training ended
    }
    given = {name: tensor for name, tensor in given.items() if not is_seed(name)}
    if own.keys() != given.keys():
        raise ConfigError(
            f"{file} is of another model: {_some(given, own)} are only in the file, {_some(own, given)} only in the "
            "model; give weights of the same model, with the same names of layers"
        )
    for name, tensor in own.items():
        if tensor.shape != given[name].shape:
            raise ConfigError(f"{name} is {_size(given[name])} in {file}, but {_size(tensor)} in the model")
    with torch.no_grad():
        for name, tensor in own.items():
            tensor.copy_(given[name])


def _size(tensor: Tensor) -> str:
    return "x".join(map(str, tensor.shape)) or "a number"


def _some(names: dict[str, Tensor], without: dict[str, Tensor]) -> str:
    only = [name for name in names if name not in without]
    return ", ".join(only[:3]) + (" ..." if len(only) > 3 else "") if only else "none"
