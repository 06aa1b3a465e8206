"""Profiles for tests: a workload's own layers, and times that were made up."""

from __future__ import annotations

import torch

from minga.base.spec import describe
from minga.codecs import Codec
from minga.data.batches import length
from minga.model.replica import Replica, trainable
from minga.runs.workload import Workload
from minga.simulate.profile import CodecCost, Compute, Layer, OptimizerFacts, Profile

__all__ = ["profile_of"]


def profile_of(workload: Workload, name: str, *, codecs: tuple[Codec, ...] = ()) -> Profile:
    """A millisecond for each sample forward, two backward; gradients are ready evenly, from the last layer on."""
    with torch.random.fork_rng(devices=[]):
        model = workload.model()
    tensors = trainable(model)
    replica = Replica(model, workload.optimizer([tensor for _, tensor in tensors]))
    layers = [
        Layer(name=tensor, shape=tuple(value.shape), ready=(len(tensors) - place) / len(tensors))
        for place, (tensor, value) in enumerate(tensors)
    ]
    return Profile(
        workload=name,
        layers=tuple(layers),
        compute=(
            Compute(batch=1, data=1e-4, forward=1e-3, backward=2e-3, other=2e-4),
            Compute(batch=10, data=1e-4, forward=1e-2, backward=2e-2, other=2e-4),
        ),
        update_seconds=5e-4,
        samples=length(workload.train),
        batch=workload.batch,
        epochs=workload.epochs,
        dtype=str(replica.parameters.dtype).removeprefix("torch."),
        codecs={describe(codec): CodecCost(encode=1e-4, decode=5e-5) for codec in codecs},
        optimizer=OptimizerFacts(adaptive=replica.optimizer_is_adaptive, momentum=0.9),
        batch_norms=replica.channels_of_batch_norms,
        spread=(0.9, 1.0, 1.0, 1.2, 2.0),
    )
