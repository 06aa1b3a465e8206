"""BatchNorm over the samples of all ranks: N ranks then normalise as one process with the whole batch does.

    with normalising_together(model, add_up, weight=replica.weight):   # add_up(vector): its sum over ranks, in place
        loss_of(model, batch).backward()

Each layer adds up three sums over ranks in forward and two in backward: some kilobytes, and twice the delay of the
network. A number that says which layer it is goes with the first ones, or those of two layers might be added up.
Without it all a rank knows mean and spread of its own few samples only, and trains with noise that one process with the
whole batch has not. Torch's SyncBatchNorm does the same on GPUs alone.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional
from torch.nn.modules.batchnorm import _BatchNorm
from torch.overrides import TorchFunctionMode

from minga.errors import WorkloadError
from minga.model.keras_parts import batch_normalizations

__all__ = ["APART", "AddUp", "channels_of_batch_norms", "messages_of", "normalising_together"]

APART = (
    "nodes use different BatchNorm layers in the same step, so that they can't normalise together; "
    "training.batch_norm=each_node leaves each to its own samples"
)
"""For people whose models choose layers by chance or by their inputs."""

AddUp = Callable[[Tensor], None]
"""Makes a vector its sum over all ranks that have samples, in place."""

_SIGNATURES = {
    functional.batch_norm: inspect.signature(functional.batch_norm),
    # What that calls, and people's own code at times. Torch publishes no signature.
    torch.batch_norm: inspect.signature(
        lambda input, weight, bias, running_mean, running_var, training, momentum, eps, cudnn_enabled: None
    ),
}
_BACKWARD = frozenset({Tensor.backward, torch.autograd.backward, torch.autograd.grad})


def channels_of_batch_norms(model: nn.Module) -> tuple[int, ...]:
    """The channels of each BatchNorm layer, torch's and Keras'."""
    own = [layer.num_features for layer in _layers(model)]
    return (*own, *(layer.moving_mean.value.numel() for layer in batch_normalizations(model)))


def _layers(model: nn.Module) -> list[_BatchNorm]:
    return [module for module in model.modules() if isinstance(module, _BatchNorm)]


def messages_of(channels: Sequence[int], dtype: torch.dtype) -> list[tuple[int, torch.dtype]]:
    """Length and type of each vector that a step with such layers adds up, in order."""
    forward = [(2 * each + 2, torch.float64) for each in channels]
    return forward + [(2 * each, dtype) for each in reversed(channels)]


@contextlib.contextmanager
def normalising_together(model: nn.Module, add_up: AddUp, *, weight: float) -> Iterator[None]:
    """Meanwhile, on this thread, BatchNorm that is training normalises over the samples of all ranks.

    `weight`: what this rank's gradients are multiplied with before they are averaged. All ranks that have samples must
    use the same layers in the same order.
    """
    with contextlib.ExitStack() as patched:
        for number, layer in enumerate(batch_normalizations(model), 1):
            # A name of Keras' own: no public one stands between moments and their use.
            layer._moments = _moments_over_ranks(layer._moments, number, add_up, weight)
            patched.callback(object.__delattr__, layer, "_moments")
        patched.enter_context(_Together(model, add_up, weight))
        yield


class _Together(TorchFunctionMode):
    """Stands between modules and the function that all of torch's BatchNorm layers call."""

    def __init__(self, model: nn.Module, add_up: AddUp, weight: float) -> None:
        super().__init__()
        self._model, self._add_up, self._weight = model, add_up, weight
        # What a function knows of a layer; where it knows nothing, all are number 0.
        self._numbers = {
            id(tensor): number
            for number, layer in enumerate(_layers(model), 1)
            for tensor in (layer.weight, layer.running_mean)
            if tensor is not None
        }

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func in _BACKWARD:
            with self._in_each_layer():
                return func(*args, **(kwargs or {}))
        if func not in _SIGNATURES:
            return func(*args, **(kwargs or {}))
        given = _SIGNATURES[func].bind(*args, **(kwargs or {}))
        given.apply_defaults()
        named = given.arguments
        if not named["training"]:
            return func(*args, **(kwargs or {}))
        return _Normalised.apply(  # type: ignore[no-untyped-call]
            named["input"],
            named["weight"],
            named["bias"],
            named["running_mean"],
            named["running_var"],
            named["momentum"],
            named["eps"],
            self._numbers.get(id(named["weight"])) or self._numbers.get(id(named["running_mean"]), 0),
            self._add_up,
            self._weight,
        )

    @contextlib.contextmanager
    def _in_each_layer(self) -> Iterator[None]:
        """Torch goes through backward without modes, but layers under torch.utils.checkpoint run once more in there."""
        entered = contextlib.ExitStack()

        def enter(*_: Any) -> None:
            entered.enter_context(self)

        def leave(*_: Any) -> None:
            entered.close()

        with contextlib.ExitStack() as hooks:
            for layer in _layers(self._model):
                hooks.callback(layer.register_forward_pre_hook(enter).remove)
                hooks.callback(layer.register_forward_hook(leave, always_call=True).remove)
            yield


class _Normalised(torch.autograd.Function):
    """Normalise over the samples of all ranks, with gradients that know of it."""

    @staticmethod
    def forward(
        ctx: Any,
        inputs: Tensor,
        scale: Tensor | None,
        shift: Tensor | None,
        running_mean: Tensor | None,
        running_var: Tensor | None,
        momentum: float,
        epsilon: float,
        number: int,
        add_up: AddUp,
        weight: float,
    ) -> Tensor:
        exact = inputs if inputs.dtype in (torch.float32, torch.float64) else inputs.float()
        mean, variance = _own_moments(exact)
        values = mean.new_tensor([inputs.numel() // inputs.shape[1]], dtype=torch.float64)
        values, mean, variance = _pooled(values, mean, variance, number, add_up, weight)
        count = float(values)
        if count < 2:
            raise ValueError(
                f"Expected more than 1 value per channel when training, got {tuple(inputs.shape)} on the only rank "
                "that has a sample"
            )
        for running, news in ((running_mean, mean), (running_var, variance * (count / (count - 1)))):
            if running is not None:
                running.lerp_(news.to(running.dtype), momentum)
        mean, variance = mean.to(exact.dtype), variance.to(exact.dtype)
        # Half the precision is for inputs only, or torch would want statistics in it as well.
        scale, shift = (each if each is None else each.to(exact.dtype) for each in (scale, shift))
        ctx.save_for_backward(inputs, scale, mean, variance)
        ctx.count, ctx.epsilon, ctx.add_up, ctx.weight = count, epsilon, add_up, weight
        normalised: Tensor = functional.batch_norm(inputs, mean, variance, scale, shift, False, 0.0, epsilon)
        return normalised

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradients: Tensor) -> tuple[Tensor | None, ...]:
        inputs, scale, mean, variance = ctx.saved_tensors
        deviation = torch.rsqrt(variance + ctx.epsilon)
        factor = deviation if scale is None else deviation * scale
        if gradients.stride() != inputs.stride():  # torch is fast where both lie in memory alike
            gradients = torch.empty_like(inputs, dtype=gradients.dtype).copy_(gradients)
        # As if mean and variance were given; what depends on them comes next. Gradients of inputs are computed here, as
        # torch takes several times as long for them.
        _, of_scale, of_shift = torch.ops.aten.native_batch_norm_backward(
            gradients,
            inputs,
            torch.ones_like(mean) if scale is None else scale,
            mean,
            variance,
            None,
            None,
            False,
            ctx.epsilon,
            [False, True, True],
        )
        of_inputs = None
        if ctx.needs_input_grad[0]:
            # A rank's gradients are those of its own mean loss, and count `weight` times in the mean of all.
            sums = torch.cat([of_shift, of_scale]).to(mean.dtype) * ctx.weight
            ctx.add_up(sums)
            of_all_shifts, of_all_scales = (sums / (ctx.weight * ctx.count)).chunk(2)
            slope = -factor * deviation * of_all_scales
            offset = -factor * of_all_shifts - slope * mean
            factor, slope, offset = (_along_channels(each.to(inputs.dtype), inputs) for each in (factor, slope, offset))
            of_inputs = torch.mul(gradients, factor).addcmul_(inputs, slope).add_(offset)
        nothing = (None,) * 7
        return (
            of_inputs,
            of_scale if ctx.needs_input_grad[1] else None,
            of_shift if ctx.needs_input_grad[2] else None,
            *nothing,
        )


def _own_moments(inputs: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and variance of each channel over this rank's own samples."""
    # Torch's own functions for it take five times as long where channels come first.
    others = [dimension for dimension in range(inputs.dim()) if dimension != 1]
    mean = inputs.mean(others)
    return mean, (inputs - _along_channels(mean, inputs)).square_().mean(others)


def _along_channels(values: Tensor, inputs: Tensor) -> Tensor:
    """A value for each channel, in a shape that goes with inputs."""
    return values.view([-1 if dimension == 1 else 1 for dimension in range(inputs.dim())])


def _pooled(
    count: Tensor, mean: Tensor, variance: Tensor, number: int, add_up: AddUp, weight: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Values of each channel, their mean and variance, over all ranks; in float64, where squares may be added up."""
    mean, variance = mean.double(), variance.double()
    sums = torch.cat([count, count * number, count * mean, count * (variance + mean.square())])
    total = _Sum.apply(sums, add_up, weight)  # type: ignore[no-untyped-call]
    count, numbers, mean, squares = total.split([1, 1, len(mean), len(mean)])
    if abs(float(numbers.detach() / count.detach()) - number) > 1e-6:
        raise WorkloadError(APART)
    mean = mean / count
    return count, mean, (squares / count - mean.square()).clamp(min=0)


class _Sum(torch.autograd.Function):
    """A vector's sum over ranks, for whoever lets torch derive the rest."""

    @staticmethod
    def forward(ctx: Any, vector: Tensor, add_up: AddUp, weight: float) -> Tensor:
        ctx.add_up, ctx.weight = add_up, weight
        total = vector.clone()
        add_up(total)
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradients: Tensor) -> tuple[Tensor, None, None]:
        total = gradients * ctx.weight
        ctx.add_up(total)
        return total / ctx.weight, None, None


def _moments_over_ranks(own: Callable[..., Any], number: int, add_up: AddUp, weight: float) -> Callable[..., Any]:
    """Keras' mean and variance, over the samples of all ranks."""

    def moments(inputs: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        mean, variance = own(inputs, mask)
        counted = torch.ones_like(inputs) if mask is None else mask.unsqueeze(-1).expand_as(inputs)
        count = counted.sum(dtype=torch.float64).view(1) / mean.numel()
        _, pooled, spread = _pooled(count, mean, variance, number, add_up, weight)
        return pooled.to(mean.dtype), spread.to(variance.dtype)

    return moments
