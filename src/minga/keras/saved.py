"""From a run back to Keras.

    model = minga.keras.load("runs/20260101-120000-mine-ring-2")       # compiled, with the trained weights
    minga.keras.save("runs/20260101-120000-mine-ring-2", "mine.keras")
    keras.saving.load_model("mine.keras")                              # on any backend of Keras, safe_mode as it is

Weights are read from safetensors and written as Keras writes them (JSON and HDF5): nothing in either is code.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from minga.errors import ConfigError
from minga.keras.making import Maker
from minga.model.keras_parts import import_keras, is_keras_model
from minga.model.weights import take_weights, weights_file
from minga.runs.experiment import load as load_experiment
from minga.runs.workload import load_workload

__all__ = ["load", "save"]


def load(run: str | Path, model: Any = None) -> Any:
    """The model that a run has trained; `model`: put the weights into this one, instead of making it anew."""
    import_keras()
    directory = Path(run).expanduser()
    weights_file(directory)  # for its errors, before a model is made
    if model is None:
        maker = _maker_of(directory)
        model, trained = maker.compiled(), _trained(maker, directory)
    else:
        if not is_keras_model(model):
            raise ConfigError(f"a {type(model).__name__} is no Keras model to load weights into; give a keras.Model")
        if not model.built:
            raise ConfigError(f"the model {model.name!r} has no weights yet; call it on a sample, or build() it, first")
        try:
            take_weights(model, directory)
        except ConfigError:
            # The same model may have other names: Keras counts layers over all models of a process.
            if not (directory / "experiment.toml").is_file():
                raise
            trained = _trained(_maker_of(directory), directory)
            if [weight.shape for weight in trained.weights] != [weight.shape for weight in model.weights]:
                raise
        else:
            return model
    # By their order, as Keras may name a copy's variables otherwise than those of the model.
    model.set_weights(trained.get_weights())
    return model


def _maker_of(directory: Path) -> Maker:
    """What makes the model of a run."""
    experiment = load_experiment(directory / "experiment.toml")
    maker = load_workload(experiment.workload, experiment.data).model
    if not isinstance(maker, Maker):
        raise ConfigError(f"{directory} is a run of {experiment.workload}, which is no Keras model")
    return maker


def _trained(maker: Maker, directory: Path) -> Any:
    """A model as the ranks have made it, with the weights of the run."""
    model = maker()
    take_weights(model, directory)
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
