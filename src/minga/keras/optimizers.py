"""What `compile(optimizer=...)` says, as torch's optimizer of the same mathematics.

Strategies cut, move and average the optimizer's state, which they can with torch's, not with Keras'.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from minga.errors import WorkloadError, unknown
from minga.model.clipping import clipped

__all__ = ["learning_rate_of", "translate"]

Names = Mapping[str, str | tuple[str, ...]]


class RMSprop(torch.optim.RMSprop):
    """As Keras has it, with epsilon below the root: what models use that name no optimizer in compile().

    Torch's adds epsilon beside the root, where it holds back small gradients a thousand times less.
    """

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        assert closure is None, "strategies compute gradients themselves"
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._move(parameter, parameter.grad, group, self.state[parameter])

    def _move(self, parameter: Any, gradient: Tensor, group: dict[str, Any], state: dict[str, Any]) -> None:
        if not state:
            names = ["square_avg", *["grad_avg"] * group["centered"], *["momentum_buffer"] * (group["momentum"] > 0)]
            state.update({name: torch.zeros_like(parameter) for name in names})
        squares = state["square_avg"].mul_(group["alpha"]).addcmul_(gradient, gradient, value=1 - group["alpha"])
        below = squares + group["eps"]
        if group["centered"]:
            mean = state["grad_avg"].lerp_(gradient, 1 - group["alpha"])
            below.sub_(mean.square())
        movement = gradient * below.rsqrt()
        if group["momentum"] > 0:
            movement = state["momentum_buffer"].mul_(group["momentum"]).add_(movement)
        parameter.add_(movement, alpha=-group["lr"])


_BETAS: Names = {"betas": ("beta_1", "beta_2"), "eps": "epsilon"}
# What each gets besides the learning rate: torch's names and Keras' own.
_TRANSLATED: dict[str, tuple[type[Optimizer], Names]] = {
    "SGD": (torch.optim.SGD, {"momentum": "momentum", "nesterov": "nesterov"}),
    "Adam": (torch.optim.Adam, {**_BETAS, "amsgrad": "amsgrad"}),
    "AdamW": (torch.optim.AdamW, {**_BETAS, "amsgrad": "amsgrad"}),
    "Adamax": (torch.optim.Adamax, _BETAS),
    "Nadam": (torch.optim.NAdam, _BETAS),
    "RMSprop": (RMSprop, {"alpha": "rho", "momentum": "momentum", "centered": "centered", "eps": "epsilon"}),
    "Adagrad": (torch.optim.Adagrad, {"initial_accumulator_value": "initial_accumulator_value", "eps": "epsilon"}),
    "Adadelta": (torch.optim.Adadelta, {"rho": "rho", "eps": "epsilon"}),
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
    made_by, names = _TRANSLATED[kind]
    given: dict[str, Any] = {"lr": learning_rate}
    for ours, theirs in names.items():
        given[ours] = own[theirs] if isinstance(theirs, str) else tuple(own[each] for each in theirs)
    decay = own.get("weight_decay")
    if kind == "SGD":  # without momentum Nesterov's is plain SGD, which Keras takes it for and torch refuses
        given["nesterov"] = own["nesterov"] and own["momentum"] > 0
    if kind == "Nadam":
        given |= {"momentum_decay": 1.0, "decoupled_weight_decay": bool(decay)}
    elif decay and kind in ("Adam", "AdamW"):
        made_by = torch.optim.AdamW
    elif decay:
        raise WorkloadError(
            f"weight_decay={decay} of {kind} can't be translated: Keras takes it from the weights beside the "
            "gradient, torch into it; use AdamW, or kernel_regularizer=keras.regularizers.L2 in the layers"
        )
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

    # Not the first, which is 0 where it warms up.
    highest = max(float(schedule(round(part / 100 * steps))) for part in range(101))
    if not highest > 0:
        raise WorkloadError(f"the learning rate of {type(optimizer).__name__} is {highest}; it should be above 0")

    def factor(progress: float) -> float:
        # An epoch's last batch may be smaller than the others, so that these end a little further than whole numbers.
        return float(schedule(max(math.floor(min(progress, 1.0) * steps + 1e-6) - 1, 0))) / highest

    return highest, factor
