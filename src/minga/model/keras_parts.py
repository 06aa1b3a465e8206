"""What Keras' models have that torch's have not, found without importing Keras.

On its torch backend a Keras model is a `torch.nn.Module`, with peculiarities: statistics of BatchNormalization and the
states of random generators are parameters (frozen ones) instead of buffers, and each tensor is registered again in
every layer around its own, so that `state_dict()` has it several times.
"""

from __future__ import annotations

import importlib
import itertools
import os
import sys
from typing import Any

from minga.base.lazy import Tensor, nn
from minga.errors import ConfigError

__all__ = [
    "batch_normalizations",
    "import_keras",
    "is_keras_model",
    "is_seed",
    "named_variables",
    "part_seeds",
    "prefer_torch",
    "register_variables",
    "statistics",
]

# Keras draws with seed + number of the draw, so seeds of ranks must lie further apart than a run has draws.
_BETWEEN_SEEDS = 1_000_003_009
_SEEDS = 2**31


def prefer_torch() -> None:
    """Keras reads its backend from the environment when it is imported, once: from now on that is torch."""
    if "keras" not in sys.modules:
        os.environ["KERAS_BACKEND"] = "torch"


def import_keras() -> Any:
    """Keras 3 on its torch backend, or an error that says what to do."""
    prefer_torch()
    try:
        keras: Any = importlib.import_module("keras")
    except ImportError as error:
        raise ConfigError(f"Keras can't be imported ({error}); install it: pip install 'minga[keras]'") from None
    version = str(getattr(keras, "__version__", "2"))
    if int(version.partition(".")[0]) < 3:
        raise ConfigError(f"this is Keras {version}, and only Keras 3 runs on torch; pip install 'minga[keras]'")
    backend = keras.backend.backend()
    if backend != "torch":
        raise ConfigError(
            f"Keras was imported with the backend {backend!r}, and minga trains with 'torch'; set KERAS_BACKEND=torch "
            "or import minga.keras before the first import of keras, and start Python (or the notebook's kernel) again"
        )
    return keras


def is_keras_model(thing: object) -> bool:
    keras: Any = sys.modules.get("keras")
    return keras is not None and hasattr(keras, "Model") and isinstance(thing, keras.Model)


def named_variables(model: nn.Module) -> dict[str, Tensor] | None:
    """All variables of a Keras model by their path, each once; None for other models.

    Layers of two inner models may have the same path: from the second on, a number goes before it.
    """
    if not is_keras_model(model):
        return None
    named: dict[str, Tensor] = {}
    for variable in _variables(model):
        name, numbers = variable.path, itertools.count(2)
        while name in named:
            name = f"{next(numbers)}/{variable.path}"
        named[name] = variable.value
    return named


def register_variables(model: nn.Module) -> None:
    """Have torch know all variables of a Keras model.

    Keras registers them by path, the last of each alone, and none that a layer gets later, as with `enable_lora`.
    """
    named = named_variables(model)
    known = {id(parameter) for parameter in model.parameters()}
    if named is not None and any(id(tensor) not in known for tensor in named.values()):
        model._torch_params = nn.ParameterDict(named)


def _variables(model: Any) -> list[Any]:
    # A generator that two layers share is listed twice.
    return list({id(variable): variable for variable in model.variables}.values())


def is_seed(name: str) -> bool:
    """Whether the parameter of that name is the state of one of Keras' random generators."""
    return name.rpartition("/")[2] == "seed_generator_state"


def part_seeds(model: nn.Module, rank: int) -> None:
    """Give generators with a seed of their own another one on each rank, or all would drop the same units.

    Rank 0 keeps what the model says. Generators without a seed draw from torch's, which differs already.
    """
    for name, tensor in model.named_parameters():
        if is_seed(name):
            state = tensor.detach()
            state[0] = (int(state[0]) + rank * _BETWEEN_SEEDS) % _SEEDS


def statistics(model: nn.Module) -> list[tuple[Tensor, Tensor]]:
    """Moving mean and variance of each of Keras' BatchNormalization layers."""
    layers = batch_normalizations(model)
    return [(layer.moving_mean.value, layer.moving_variance.value) for layer in layers]


def batch_normalizations(model: nn.Module) -> list[Any]:
    """Each of Keras' BatchNormalization layers."""
    keras: Any = sys.modules.get("keras")
    if keras is None or not hasattr(keras, "Layer"):
        return []
    found: dict[int, Any] = {}
    for module in model.modules():
        if isinstance(module, keras.Layer):
            # Keras keeps layers in lists of its own, which torch does not see; no public name has all of them.
            layers = (layer for layer in module._flatten_layers() if isinstance(layer, keras.layers.BatchNormalization))
            found |= {id(layer): layer for layer in layers if layer.built}
    return list(found.values())
