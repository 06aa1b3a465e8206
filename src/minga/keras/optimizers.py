"""What `compile(optimizer=...)` says, as torch's optimizer of the same mathematics.

Strategies cut, move and average the optimizer's state, which they can with torch's, not with Keras'.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from minga.errors import WorkloadError, unknown
from minga.keras.rmsprop import RMSprop
from minga.model.clipping import clipped

__all__ = ["learning_rate_of", "translate"]

Options = dict[str, Any]

# What each gets besides the learning rate, from Keras' own description of it.
_TRANSLATED: dict[str, tuple[type[Optimizer], Callable[[Options], Options]]] = {
    # Without momentum Nesterov's is plain SGD, which Keras takes it for and torch refuses.
    "SGD": (
        torch.optim.SGD,
        lambda own: {"momentum": own["momentum"], "nesterov": own["nesterov"] and own["momentum"] > 0},
    ),
    "Adam": (torch.optim.Adam, lambda own: {**_betas(own), "amsgrad": own["amsgrad"]}),
    "AdamW": (torch.optim.AdamW, lambda own: {**_betas(own), "amsgrad": own["amsgrad"]}),
    "Adamax": (torch.optim.Adamax, lambda own: _betas(own)),
    "Nadam": (torch.optim.NAdam, lambda own: {**_betas(own), "momentum_decay": 1.0}),
    "RMSprop": (
        RMSprop,
        lambda own: {
            "alpha": own["rho"],
            "momentum": own["momentum"],
            "centered": own["centered"],
            "eps": own["epsilon"],
        },
    ),
    "Adagrad": (
        torch.optim.Adagrad,
        lambda own: {"initial_accumulator_value": own["initial_accumulator_value"], "eps": own["epsilon"]},
    ),
    "Adadelta": (torch.optim.Adadelta, lambda own: {"rho": own["rho"], "eps": own["epsilon"]}),
}
# compile() puts it around the optimizer of any model of this policy, unasked.
_SCALED = (
    "the optimizer scales the loss (LossScaleOptimizer), as Keras has it for models of the policy mixed_float16, which "
    "can't be translated; use the policy mixed_bfloat16, which needs no scaling, or float32"
)
_ABSENT = ("use_ema", "loss_scale_factor", "gradient_accumulation_steps")
_CLIPPING = {"clipnorm": "norm_of_each", "global_clipnorm": "norm", "clipvalue": "value"}
"""Keras' names and ours."""


def translate(optimizer: Any, learning_rate: float) -> Callable[[Iterable[nn.Parameter]], Optimizer]:
    """A function that makes torch's counterpart of a Keras optimizer for given parameters.

    `learning_rate`: as `learning_rate_of` gives it, beside the factor that it goes with.
    """
    kind = type(optimizer).__name__
    if kind == "LossScaleOptimizer":
        raise WorkloadError(_SCALED)
    remedy = "Or write a minga.Workload with an optimizer of torch's."
    if kind not in _TRANSLATED:
        raise unknown("optimizer of Keras that minga can translate:", kind, _TRANSLATED, remedy)
    own = optimizer.get_config()
    for option in _ABSENT:
        if own.get(option):
            raise WorkloadError(
                f"the optimizer {kind} has {option}={own[option]!r}, which can't be translated; leave it out. {remedy}"
            )
    made_by, options = _TRANSLATED[kind]
    given = {**options(own), "lr": learning_rate}
    decay = own.get("weight_decay")
    if decay:
        if kind not in ("Adam", "AdamW", "Nadam"):
            raise WorkloadError(
                f"weight_decay={decay} of {kind} can't be translated: Keras takes it from the weights beside the "
                "gradient, torch into it; use AdamW, or kernel_regularizer=keras.regularizers.L2 in the layers"
            )
        if kind == "Nadam":
            given["decoupled_weight_decay"] = True
        else:
            made_by = torch.optim.AdamW
    given["weight_decay"] = float(decay or 0.0)
    clipping = {ours: own[theirs] for theirs, ours in _CLIPPING.items() if own.get(theirs)}

    def make(parameters: Iterable[nn.Parameter]) -> Optimizer:
        made = made_by(_by_decay(parameters), **given)
        return clipped(made, **clipping) if clipping else made

    return make


def _by_decay(parameters: Iterable[nn.Parameter]) -> list[dict[str, Any]]:
    """Groups of those that decay and of those that `exclude_from_weight_decay` has named."""
    each = list(parameters)
    excluded = [parameter for parameter in each if not getattr(parameter, "decays", True)]
    decaying = [parameter for parameter in each if getattr(parameter, "decays", True)]
    groups: list[dict[str, Any]] = [{"params": decaying}, {"params": excluded, "weight_decay": 0.0}]
    return [group for group in groups if group["params"]]


def learning_rate_of(optimizer: Any, steps: int) -> tuple[float, Callable[[float], float] | None]:
    """The learning rate, and for a schedule its highest one and the factor on that as a function of progress.

    `steps`: how many the schedule is followed over. Progress is that at the end of a step, and Keras counts the steps
    that are behind.
    """
    schedule = getattr(optimizer, "_learning_rate", None)
    if not callable(schedule):
        return float(optimizer.learning_rate), None

    def rate(progress: float) -> float:
        # An epoch's last batch may be smaller than the others, so that these end a little further than whole numbers.
        return float(schedule(max(math.floor(progress * steps + 1e-6) - 1, 0)))

    highest = max(
        float(schedule(round(part / 100 * steps))) for part in range(101)
    )  # not the first, which is 0 where it warms up
    if not highest > 0:
        raise WorkloadError(f"the learning rate of {type(optimizer).__name__} is {highest}; it should be above 0")
    return highest, lambda progress: rate(min(progress, 1.0)) / highest


def _betas(own: Options) -> Options:
    return {"betas": (own["beta_1"], own["beta_2"]), "eps": own["epsilon"]}
