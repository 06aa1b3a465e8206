"""A compiled Keras model and its data as a workload.

    workload = minga.keras.workload(make_model, train=(x_train, y_train), test=(x_test, y_test), epochs=10)

Optimizer, loss and metrics are those of `compile()`, regularizers and `add_loss` included.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import numpy
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset, StackDataset, TensorDataset

from minga.base.user_files import names_in_file
from minga.data.batches import first_samples
from minga.data.stream import StreamReader, is_stream
from minga.errors import WorkloadError
from minga.keras.making import Copies, New
from minga.keras.metrics import translate as translate_metrics
from minga.keras.optimizers import learning_rate_of
from minga.keras.optimizers import translate as translate_optimizer
from minga.model.keras_parts import import_keras, is_keras_model
from minga.runs.workload import Workload

__all__ = ["workload", "workload_in_file"]

_FORMS = "give (x, y) with arrays as for fit(), or a torch Dataset of (inputs, targets)"
_MEANS = ("sum_over_batch_size", "mean", "mean_with_sample_weight")


def workload(
    model: Any, *, train: Any, test: Any = None, name: str | None = None, batch: int = 32, epochs: int = 5
) -> Workload:
    """Train a compiled Keras model, or what a function makes: `train` and `test` are `(x, y)` or torch data sets.

    A function's model begins with the weights that the run's seed gives; a model begins with those that it has.
    """
    import_keras()
    if not (is_keras_model(model) or inspect.isroutine(model)):
        raise WorkloadError(
            f"a {type(model).__name__} is no compiled Keras model, nor a function that makes one; give one of these"
        )
    data = _as_dataset("train", train)
    inputs, targets = _pair("a sample of the data", first_samples(data, 2, torch.device("cpu")))
    maker = (Copies if is_keras_model(model) else New)(model, lambda: inputs)
    sample = maker.compiled()
    _check(sample)
    if isinstance(maker, Copies):
        maker()  # so that what can't be copied is said here, not by the ranks
    with torch.no_grad():
        outputs = _call(sample, inputs, training=False)
    if not isinstance(outputs, Tensor):
        raise WorkloadError(
            f"the model {sample.name!r} has {len(outputs)} outputs, and minga translates models with one; write a "
            "minga.Workload whose predict(model, batch) joins them"
        )
    _check_mean(sample, inputs, targets)
    # As many steps as fit() would take on one node; the run may be longer or shorter, and stretches the schedule.
    rate, schedule = learning_rate_of(sample.optimizer, epochs * -(-_samples(data) // batch))
    return Workload(
        name=name or sample.name,
        model=maker,
        train=data,
        test=None if test is None else _as_dataset("test", test),
        loss=_loss,
        predict=_predict,
        optimizer=translate_optimizer(sample.optimizer, rate),
        metrics=translate_metrics(sample, outputs, targets),
        schedule=schedule,
        batch=batch,
        epochs=epochs,
    )


def workload_in_file(reference: str, model: Any) -> Workload:
    """The workload of a model (or a function that makes it) with the data that its file has beside it."""
    names = names_in_file(reference)
    file = Path(reference.partition(":")[0])
    data = {}
    for part in ("train", "test"):
        if f"x_{part}" in names and f"y_{part}" in names:
            data[part] = (names[f"x_{part}"], names[f"y_{part}"])
        elif isinstance(names.get(part), tuple | list | Dataset):
            data[part] = names[part]
    if "train" not in data:
        raise WorkloadError(
            f"{file.name} has a Keras model and no data beside it: define x_train and y_train (x_test and y_test), "
            f"or train and test ({_FORMS}), or make a workload with minga.keras.workload(...)"
        )
    given = {"batch": names.get("batch_size"), "epochs": names.get("epochs")}
    settings = {name: value for name, value in given.items() if isinstance(value, int)}
    return workload(model, train=data["train"], test=data.get("test"), name=file.stem, **settings)


def _check(model: Any) -> None:
    keras = import_keras()
    if not getattr(model, "compiled", False) or model.optimizer is None or model.loss is None:
        raise WorkloadError(
            f"the model {model.name!r} is not compiled with an optimizer and a loss; call "
            "model.compile(optimizer=..., loss=..., metrics=[...]) before it is given to minga"
        )
    if type(model).train_step is not keras.Model.train_step:
        raise WorkloadError(
            f"{type(model).__name__} has a train_step of its own, which no strategy can split; put what it computes "
            "into compute_loss, or use a loop of your own with minga.join()"
        )
    given = model.loss
    if isinstance(given, list | tuple | dict) and len(given) == 1:  # of the only output, by its name or place
        (given,) = given.values() if isinstance(given, dict) else given
    if isinstance(given, list | tuple | dict):
        raise WorkloadError(f"the model {model.name!r} has several losses; minga translates models with one")
    loss: Any = None if given in ("crossentropy", "ce") else keras.losses.get(given)
    reduction = getattr(loss, "reduction", "mean")
    if reduction not in _MEANS:
        raise WorkloadError(
            f"the loss {loss.name!r} has reduction={reduction!r}, so it depends on how many samples a node has; "
            "use 'sum_over_batch_size', the mean"
        )
    for variable in model.trainable_variables:
        constraint = variable.constraint
        if constraint is not None:
            kind = getattr(constraint, "__name__", type(constraint).__name__)
            raise WorkloadError(
                f"{variable.path} has the constraint {kind}, which weights that are updated in parts and averaged "
                "would not keep to; leave it out, or use a regularizer such as kernel_regularizer=keras.regularizers.L2"
            )


def _check_mean(model: Any, inputs: Any, targets: Tensor) -> None:
    """Refuse a loss that is a sum, or has one in it (by compute_loss or add_loss): the same samples twice add to it."""

    def loss_of(copies: int) -> float:
        several = _each_input(inputs, lambda part: torch.cat([part] * copies))
        with torch.no_grad():
            return float(_loss(*_predict(model, (several, torch.cat([targets] * copies)))))

    model.eval()
    try:
        once, twice, four_times = map(loss_of, (1, 2, 4))
    except (IndexError, RuntimeError, TypeError, ValueError):
        return  # a loss that can't be computed, or not of so many samples, is told where it is needed
    grows = abs(twice - once) > 1e-3 * abs(twice)
    # What compares samples with each other grows too, but less and less.
    if grows and math.isclose(four_times - twice, 2 * (twice - once), rel_tol=1e-2):
        raise WorkloadError(
            f"the loss of the model {model.name!r} is a sum over samples, or has one in it ({once:.6g} of 2 samples, "
            f"{twice:.6g} of the same twice), so it depends on how many a node has; use means, such as ops.mean"
        )


def _call(model: Any, inputs: Any, *, training: bool) -> Any:
    # Keras' own trainer asks the same before it tells a model that it is being trained.
    return model(inputs, training=training) if model._call_has_training_arg else model(inputs)


def _predict(model: nn.Module, batch: Any) -> tuple[Tensor, Tensor]:
    """Outputs and targets. The loss comes with the outputs, as only the model knows all parts of it."""
    inputs, targets = _pair("a sample of the data", batch)
    with import_keras().device(str(targets.device)):
        outputs = _call(model, inputs, training=model.training)
        outputs.keras_loss = model.compute_loss(  # type: ignore[operator]
            x=inputs, y=targets, y_pred=outputs, training=model.training
        )
    return outputs, targets


def _loss(outputs: Tensor, targets: Tensor) -> Tensor:
    loss = getattr(outputs, "keras_loss", None)
    assert isinstance(loss, Tensor), "the outputs are not those of the workload's predict"
    return loss


def _pair(name: str, value: Any) -> tuple[Any, Any]:
    if not (isinstance(value, tuple | list) and len(value) == 2):
        what = f"{len(value)} parts" if isinstance(value, tuple | list) else f"a {type(value).__name__}"
        raise WorkloadError(f"{name} is {what}, not (inputs, targets); {_FORMS}")
    return value[0], value[1]


def _samples(data: Dataset[Any]) -> int:
    count = StreamReader(data).samples if is_stream(data) else len(data)  # type: ignore[arg-type]
    return count or 1000  # of a stream without an end, which goes with no schedule anyway


# --- data as Keras takes it: arrays, channels last -----------------------------------------------------------------


def _as_dataset(name: str, data: Any) -> Dataset[Any]:
    """`(x, y)` as a data set; what is one already stays as it is."""
    if isinstance(data, Dataset):
        return data
    given, labels = _pair(name, data)
    inputs = _each_input(given, _tensor)
    parts: list[Tensor] = []
    _each_input(inputs, parts.append)
    if isinstance(labels, Mapping) or (_several(labels) and len(labels) != len(parts[0])):
        raise WorkloadError(
            f"{name} has {len(labels)} arrays of targets, as models with several outputs have, and minga translates "
            "models with one; write a minga.Workload whose predict(model, batch) joins them"
        )
    targets = _tensor(labels)
    if any(len(part) != len(targets) for part in parts):
        lengths = ", ".join(str(len(part)) for part in parts)
        raise WorkloadError(f"{name} has {lengths} inputs and {len(targets)} targets; there should be as many of each")
    if not len(targets):
        raise WorkloadError(f"{name} has no samples; give some{'' if name == 'train' else ', or None for no test'}")
    if isinstance(inputs, Tensor):
        return TensorDataset(inputs, targets)
    several: Any = StackDataset(**inputs) if isinstance(inputs, dict) else StackDataset(*inputs)
    return StackDataset(several, cast(Any, targets))


def _each_input(value: Any, function: Any) -> Any:
    """The function's result for each array of inputs, in the form that the model has them."""
    if isinstance(value, Mapping):
        return {key: function(part) for key, part in value.items()}
    if _several(value):
        return tuple(function(part) for part in value)
    return function(value)


def _several(value: Any) -> bool:
    """Whether these are arrays in a list, not numbers: an array is also a list of its rows."""
    return isinstance(value, tuple | list) and bool(value) and getattr(value[0], "shape", ()) != ()


def _tensor(value: Any) -> Tensor:
    if isinstance(value, Tensor):
        tensor = value
    else:
        array = numpy.ascontiguousarray(value)
        try:
            # In this machine's order of bytes, which torch insists on and files of other machines may not have.
            tensor = torch.from_numpy(array.astype(array.dtype.newbyteorder("="), copy=False))
        except TypeError:
            raise WorkloadError(f"{type(value).__name__} is no array of numbers; {_FORMS}") from None
    # As fit() does: numpy's usual float64 becomes what the model computes with; integers are cast by the model.
    usual = getattr(torch, import_keras().config.floatx())
    return tensor.to(usual) if tensor.is_floating_point() else tensor
