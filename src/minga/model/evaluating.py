"""A model that is looked at instead of trained.

with evaluating(model):
    outputs = model(inputs.to(device_of(model)))
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

__all__ = ["device_of", "evaluating"]


def device_of(model: nn.Module) -> torch.device:
    """Where its first tensor is."""
    first = next(itertools.chain(model.parameters(), model.buffers()), None)
    return first.device if first is not None else torch.device("cpu")


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """In evaluation mode and without gradients; afterwards each module is in the mode that it was in."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        with torch.no_grad():  # not inference_mode: models that keep tensors between calls could not train on
            yield
    finally:
        for module, training in modes:
            if module.training != training:
                module.training = training
