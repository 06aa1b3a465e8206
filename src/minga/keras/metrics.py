"""What `compile(metrics=...)` says, as metrics whose states are added up over all nodes, then one value computed."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from minga.errors import WorkloadError
from minga.measure.metric_names import lower_by_name
from minga.metrics.metric import Metric
from minga.model.keras_parts import import_keras

__all__ = ["translate"]


def translate(model: Any, outputs: Tensor, targets: Tensor) -> dict[str, Metric]:
    """The compiled metrics of a model, which has given such outputs for such targets."""
    translated: dict[str, Metric] = {}
    for compiled in model.metrics:
        if not hasattr(compiled, "metrics"):  # the running mean of the loss, which minga keeps itself
            continue
        if not compiled.built:
            # "accuracy" is one of three metrics; which one, Keras knows only from outputs and targets.
            compiled.build(targets, outputs)
        for metric in compiled.metrics:
            translated[metric.name] = _checked(Counted(metric=metric), outputs, targets)
    return translated


@dataclass(frozen=True, kw_only=True)
class Counted(Metric):
    """A Keras metric: what it has counted in variables of its own is its state.

    Means count a total and how much it is the total of, so that what a mask leaves out counts in neither.
    """

    metric: Any
    busy: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)
    """Ranks that are threads share it."""

    @property
    def lower_is_better(self) -> bool:  # type: ignore[override]
        metrics = import_keras().metrics
        if isinstance(self.metric, metrics.FalsePositives | metrics.FalseNegatives):
            return True
        # Keras has no public name for it; its own callbacks go by this one, which not all metrics have.
        direction = getattr(self.metric, "_direction", None)
        return direction == "down" if direction else lower_by_name(self.metric.name)

    def state(self, outputs: Tensor, targets: Tensor) -> Tensor:
        with self.busy:
            self.metric.reset_state()
            self.metric.update_state(targets, outputs)
            counted = [variable.value.detach().double().flatten() for variable in self.metric.variables]
        return torch.cat(counted).cpu() if counted else torch.zeros(0, dtype=torch.float64)

    def value(self, state: Tensor) -> float:
        variables = self.metric.variables
        parts = torch.split(state, [variable.value.numel() for variable in variables])
        with self.busy:
            for variable, part in zip(variables, parts, strict=True):
                variable.assign(part.reshape(variable.shape))
            result = torch.as_tensor(self.metric.result())
        if result.numel() != 1:
            raise WorkloadError(
                f"the metric {self.metric.name!r} ({type(self.metric).__name__}) gives {result.numel()} numbers, and "
                "minga shows one for each metric; have it give their mean, such as average='macro'"
            )
        return float(result)


def _checked(metric: Counted, outputs: Tensor, targets: Tensor) -> Counted:
    """Sure that what it counts can be added up, and is one number in the end."""
    cut = len(targets) // 2
    try:
        whole = metric.state(outputs, targets)
    except (ValueError, RuntimeError) as error:
        raise WorkloadError(
            f"the metric {metric.metric.name!r} ({type(metric.metric).__name__}) does not fit outputs of shape "
            f"{tuple(outputs.shape)} and targets of shape {tuple(targets.shape)}: {error}"
        ) from error
    if cut:
        halves = [metric.state(_part(outputs, half), targets[half]) for half in (slice(cut), slice(cut, None))]
        if not torch.allclose(metric.combine(halves), whole, rtol=1e-4, atol=1e-6, equal_nan=True):
            raise WorkloadError(
                f"the metric {metric.metric.name!r} ({type(metric.metric).__name__}) can't be added up over nodes: "
                f"what it counts of two halves is not what it counts of the whole; {_remedy(metric.metric)}"
            )
    metric.value(whole)
    return metric


def _part(outputs: Tensor, part: slice) -> Tensor:
    """Some of the outputs, with their mask, which Keras keeps as an attribute that slices don't have."""
    some = outputs[part]
    mask = getattr(outputs, "_keras_mask", None)
    if mask is not None:
        some._keras_mask = mask[part]  # type: ignore[attr-defined]
    return some


def _remedy(metric: Any) -> str:
    if isinstance(metric, import_keras().metrics.MeanMetricWrapper):
        return (
            "have the function give one value for each sample, such as ops.mean(..., axis=-1) (a loss: with "
            "reduction='none'), or use a metric that counts, such as keras.metrics.RootMeanSquaredError()"
        )
    return (
        "leave it out of compile(), and ask the trained model for it: minga.keras.load(run).evaluate(...) after "
        "compile(metrics=[...])"
    )
