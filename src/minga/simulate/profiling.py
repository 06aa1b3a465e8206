"""Measuring a profile: short runs of the real thing, and the parts that runs don't show.

    profile = measure_profile("digits", progress=print)

Steps are timed by training itself, in processes of their own, as many at once as will train at once on this machine:
they share its memory. When gradients are ready in the backward pass, and how fast codecs are, is looked at between
steps, where caches are as full of other things as they will be.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from minga.base.spec import describe
from minga.codecs import BFloat16, Codec, Half, Int8, Plain, PowerSGD, RandomK, Sign, Stream, TopK
from minga.comm.threads import ThreadWorld
from minga.data.batches import length
from minga.engines.local import run
from minga.measure.event_reader import event_files, read_events
from minga.measure.events import Stepped
from minga.runs.experiment import Cluster, Experiment, Measuring, Training
from minga.runs.workload import load_workload
from minga.simulate.profile import CodecCost, Compute, Layer, OptimizerFacts, Profile, VectorTimer
from minga.strategies import Adaptive
from minga.strategies.capabilities import codecs_of
from minga.training.train_state import TrainState, build_train_state

__all__ = ["USUAL_CODECS", "measure_profile"]

USUAL_CODECS: tuple[Codec, ...] = tuple(
    dict.fromkeys(
        (
            Half(),
            BFloat16(),
            Int8(),
            Sign(),
            TopK(),
            RandomK(),
            *(PowerSGD(rank=rank) for rank in (1, 2, 4)),
            *(codec for codec in codecs_of(Adaptive()) if not isinstance(codec, Plain)),
        )
    )
)
"""What strategies use by themselves, and what people try first."""

# Steps before caches, allocators and processors are what they will be.
_WARM_UP = 5
_FEWEST_STEPS, _MOST_STEPS = 30, 300
_QUANTILES = 20
_TRIALS = 7


def measure_profile(
    workload: str,
    *,
    data: str | None = None,
    batches: Sequence[int] = (),
    codecs: Iterable[Codec] = USUAL_CODECS,
    processes: int = 1,
    pin: bool = False,
    threads: int = 1,
    seconds: float = 4.0,
    progress: Callable[[str, float], None] = lambda what, part: None,
) -> Profile:
    """Measure a workload on this machine; `processes`: how many train at once, as they will.

    `seconds`: for how long steps with each batch are measured, from 30 to 300 of them.
    """
    # Short last batches say nothing of time, and BatchNorm can do nothing with a single sample.
    usual = Training(evaluate_every=0, drop_last=True)
    experiment = Experiment(workload=workload, data=data, cluster=Cluster(threads=threads), training=usual)
    loaded = load_workload(workload, data)
    chosen = list(dict.fromkeys(codec for codec in codecs if not isinstance(codec, Plain)))
    progress("parts of a step", 0.0)
    parts = _Parts(experiment, threads)
    replica = parts.train_state.replica
    fewest = 2 if replica.channels_of_batch_norms else 1
    sizes = sorted({max(fewest, size) for size in batches or (loaded.batch // 4, loaded.batch // 2, loaded.batch)})
    jobs = len(sizes) + 1
    longest_step = parts.seconds_of_a_step(sizes[-1])
    layers = parts.layers()
    costs = {describe(codec): parts.cost_of(codec) for codec in chosen}
    computes: list[Compute] = []
    for number, batch in enumerate(sizes):
        progress(f"steps of {batch} samples", (number + 1) / jobs)
        steps = round(seconds / max(1e-4, longest_step * batch / sizes[-1]))
        steps = _WARM_UP + max(_FEWEST_STEPS, min(_MOST_STEPS, steps))
        run_ = dataclasses.replace(
            experiment,
            strategy="single" if processes == 1 else "local_sgd:period=1000000000",  # type: ignore[arg-type]
            cluster=Cluster(nodes=processes, threads=threads, pin=pin),
            training=dataclasses.replace(usual, steps=steps, batch=batch),
            measuring=Measuring(interval_seconds=0.5),
        )
        compute, update, spread = _steps_of(run_)  # those of the largest batch count
        computes.append(compute)
    progress("done", 1.0)
    return Profile(
        workload=workload,
        layers=layers,
        compute=tuple(computes),
        update_seconds=update,
        samples=length(loaded.train),
        batch=loaded.batch,
        epochs=loaded.epochs,
        dtype=str(replica.parameters.dtype).removeprefix("torch."),
        codecs=costs,
        optimizer=OptimizerFacts.of(replica),
        batch_norms=replica.channels_of_batch_norms,
        spread=spread,
        pass_seconds=parts.timer.seconds_of_a_pass(replica.gradients),
        evaluate_seconds=parts.seconds_of_a_test(),
        device=f"{platform.node()}: {threads} thread{'s' * (threads > 1)} of {os.cpu_count()} cores, "
        f"{platform.machine()}, torch {torch.__version__}",
        processes=processes,
    )


def _steps_of(experiment: Experiment) -> tuple[Compute, float, tuple[float, ...]]:
    """The medians of a step's parts, of the update, and how far steps are from the median."""
    with tempfile.TemporaryDirectory(prefix="minga-profile-") as folder:
        summary = run(dataclasses.replace(experiment, runs=folder))
        ranks = [
            [event for event in read_events(path) if isinstance(event, Stepped)]
            for path in event_files(Path(summary.run))
        ]
    parts: dict[str, list[float]] = {name: [] for name in ("data", "forward", "backward", "update", "other")}
    totals: list[float] = []
    for steps in ranks:
        for before, step in itertools.pairwise(steps[_WARM_UP:]):
            spans, total = step.seconds, step.time - before.time
            totals.append(total)
            for name in ("data", "forward", "backward", "update"):
                parts[name].append(spans.get(name, 0.0))
            parts["other"].append(
                total - sum(spans.get(name, 0.0) for name in ("data", "forward", "backward", "update"))
            )
    medians = {name: statistics.median(values) for name, values in parts.items()}
    update = medians.pop("update")
    # Medians of parts don't add up to the median of the whole.
    whole = statistics.median(totals)
    medians["other"] = max(0.0, whole - update - sum(value for name, value in medians.items() if name != "other"))
    cuts = statistics.quantiles(totals, n=_QUANTILES, method="inclusive")
    spread = tuple(value / whole for value in (min(totals), *cuts, cuts[-1]))  # the very longest is an accident
    memory = max((rank.memory_bytes for rank in summary.ranks), default=0)
    assert experiment.training.batch is not None
    return Compute(batch=experiment.training.batch, memory_bytes=memory, **medians), update, spread


class _Parts:
    """A TrainState in this process, for what the events of a run do not say."""

    def __init__(self, experiment: Experiment, threads: int) -> None:
        torch.set_num_threads(threads)
        with torch.random.fork_rng(devices=[]):
            workload = load_workload(experiment.workload, experiment.data)
            self.train_state: TrainState = build_train_state(experiment, workload, 0)
        self._samples = length(workload.train)
        self._batch = min(self.train_state.batch, self._samples)

    def _step(self) -> None:
        share = self.train_state.order.take(0, 1, self._batch)
        self.train_state.replica.compute_gradients(partial(self.train_state.loss_of, self.train_state.fetch(share)))

    def seconds_of_a_step(self, batch: int) -> float:
        self._batch = min(batch, self._samples)
        self._step()
        return min(_timed(self._step) for _ in range(3))

    def layers(self) -> tuple[Layer, ...]:
        """Each parameter, and when in the backward pass its gradient is there."""
        replica = self.train_state.replica
        moments: dict[str, float] = {}

        def note(name: str, _: nn.Parameter) -> None:
            moments[name] = time.perf_counter()

        tensors = {name: tensor for name, tensor in replica.model.named_parameters() if tensor.requires_grad}
        hooks = [
            tensor.register_post_accumulate_grad_hook(partial(note, name))  # type: ignore[no-untyped-call]
            for name, tensor in tensors.items()
        ]
        found: dict[str, list[float]] = {name: [] for name in tensors}
        for _ in range(_TRIALS):
            moments.clear()
            share = self.train_state.order.take(0, 1, self._batch)
            loss = self.train_state.loss_of(self.train_state.fetch(share))
            began = time.perf_counter()
            replica.backward(loss)
            whole = time.perf_counter() - began
            for name in tensors:
                found[name].append(min(1.0, (moments.get(name, began + whole) - began) / whole))
        for hook in hooks:
            hook.remove()
        return tuple(
            Layer(name=place.name, shape=tuple(place.shape), ready=statistics.median(found[place.name]))
            for place in replica.layout.places
        )

    @property
    def timer(self) -> VectorTimer:
        """Between steps, on gradients as they are."""
        return VectorTimer(trials=_TRIALS, now=time.perf_counter, choose=statistics.median, before_each=self._step)

    def cost_of(self, codec: Codec) -> CodecCost:
        replica = self.train_state.replica
        stream = Stream(tuple(replica.layout.shapes(0, replica.layout.length)))
        return self.timer.cost_of(codec, replica.gradients, stream)

    def seconds_of_a_test(self) -> float:
        alone = ThreadWorld(1).transport(0)
        try:
            return _timed(lambda: self.train_state.evaluate(alone))
        finally:
            alone.close()


def _timed(function: Callable[[], Any]) -> float:
    began = time.perf_counter()
    function()
    return time.perf_counter() - began
