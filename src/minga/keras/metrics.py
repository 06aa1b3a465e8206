"""What `compile(metrics=...)` says, as functions with a value for each sample, which sum up exactly over ranks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from minga.errors import WorkloadError
from minga.keras_parts import import_keras

__all__ = ["translate"]

Metric = Callable[[Tensor, Tensor], Tensor]


def translate(model: Any, outputs: Tensor, targets: Tensor) -> dict[str, Metric]:
    """The compiled metrics of a model, which has given such outputs for such targets."""
    keras = import_keras()
    translated: dict[str, Metric] = {}
    for compiled in model.metrics:
        if not hasattr(compiled, "metrics"):  # the running mean of the loss, which minga keeps itself
            continue
        if not compiled.built:
            # "accuracy" is one of three metrics; which one, Keras knows only from outputs and targets.
            compiled.build(targets, outputs)
        for metric in compiled.metrics:
            if not isinstance(metric, keras.metrics.MeanMetricWrapper):
                raise WorkloadError(
                    f"the metric {metric.name!r} ({type(metric).__name__}) is no mean over samples, and minga adds up "
                    "a value of each sample over all nodes; leave it out of compile(), and ask the trained model for "
                    "it: minga.keras.load(run).evaluate(...) after compile(metrics=[...])"
                )
            translated[metric.name] = _per_sample(metric)
    return translated


def _per_sample(metric: Any) -> Metric:
    # The function inside has no public name; `get_config` has it only in a serialised form.
    function, options = metric._fn, metric._fn_kwargs

    def value(outputs: Tensor, targets: Tensor) -> Tensor:
        values: Tensor = function(targets, outputs, **options)
        return values.double().reshape(len(targets), -1).mean(dim=1)

    return value
