"""RMSprop as Keras has it, with epsilon below the root: what models use that name no optimizer in compile()."""

from __future__ import annotations

from typing import Any

import torch

__all__ = ["RMSprop"]


class RMSprop(torch.optim.RMSprop):
    """Torch's adds epsilon beside the root, where it holds back small gradients a thousand times less."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        assert closure is None, "strategies compute gradients themselves"
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._move(parameter, parameter.grad, group, self.state[parameter])

    def _move(self, parameter: Any, gradient: torch.Tensor, group: dict[str, Any], state: dict[str, Any]) -> None:
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
