"""The events of a run: one JSON line each, one file for each rank. Everything downstream reads these.

{"event": "step", "step": 12, "epoch": 0, "loss": 0.31, "seconds": {"forward": 0.002, ...}, ...}

`event_reader` reads them back. A field that is added gets a default, so that runs of before can still be read.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from pydantic import ConfigDict, FiniteFloat

__all__ = [
    "CheckpointFailed",
    "CheckpointWritten",
    "Evaluated",
    "Event",
    "Failed",
    "Finished",
    "FoundNonFinite",
    "Powered",
    "RankRecovered",
    "RankServing",
    "RankWaiting",
    "Resumed",
    "RunFacts",
    "Sampled",
    "Started",
    "Stepped",
    "Stopped",
    "UnknownEvent",
    "step_line",
]


@dataclass(kw_only=True)
class Event:
    """Something that happened on a rank. Not frozen: that would double the time that making one takes."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(strict=True)

    event: ClassVar[str]
    time: FiniteFloat
    """Seconds on the transport's clock."""

    def to_json(self) -> str:
        # Not dataclasses.asdict, which copies everything and takes longer than all the rest of recording a step.
        return json.dumps({"event": self.event, **vars(self)})


@dataclass(kw_only=True)
class UnknownEvent(Event):
    """One that a newer version has written."""

    event = "unknown"
    name: str


@dataclass(kw_only=True)
class RunFacts:
    """What readers need to know of a run's strategy, workload and hosts; None in events of before these were there."""

    strategy: str | None = None
    """As people type it."""
    lockstep: bool | None = None
    """Whether all workers are at the same step always, so that one can hold up the others."""
    elastic: bool | None = None
    """Whether ranks may go and come."""
    servers: int | None = None
    """Ranks on top of the nodes."""
    host: str | None = None
    """In a lab, the name of the rank's host: h1, h2, ..."""
    main_metric: str | None = None
    """The metric that stands for all; None where no workload says one."""
    lower_is_better: list[str] = field(default_factory=list)
    """The names of metrics of which less is better."""


@dataclass(kw_only=True)
class Started(RunFacts, Event):
    """A rank is ready to train."""

    event = "started"
    rank: int
    ranks: int
    pid: int
    parameters: int
    samples: int | None
    """Of the training set; None for a stream without a length."""
    batch: int
    epochs: int | None
    steps: int | None


@dataclass(kw_only=True)
class Resumed(RunFacts, Event):
    """A rank goes on from a checkpoint; the events before it in the file are those until then."""

    event = "resumed"
    rank: int
    ranks: int
    pid: int
    step: int
    checkpoint: str


@dataclass(kw_only=True)
class CheckpointWritten(Event):
    """A rank has written its part of a checkpoint."""

    event = "checkpoint"
    step: int
    checkpoint: str
    bytes: int
    taking_seconds: FiniteFloat
    """Of training, for a copy of what is written."""
    writing_seconds: FiniteFloat
    """Beside training."""


@dataclass(kw_only=True)
class CheckpointFailed(Event):
    """A rank could not write its part of a checkpoint; training goes on."""

    event = "checkpoint_failed"
    rank: int
    step: int
    checkpoint: str
    message: str


@dataclass(kw_only=True)
class FoundNonFinite(Event):
    """A rank's loss or gradients were NaN or infinite; the step is left out."""

    event = "non_finite"
    rank: int
    step: int
    layer: str | None
    """None: it is the loss."""
    value: str
    """nan, inf or -inf."""
    in_a_row: int


@dataclass(kw_only=True)
class Stopped(Event):
    """A rank was asked to stop, and has."""

    event = "stopped"
    rank: int
    step: int
    checkpoint: str | None
    """The last one that this rank has written a part of."""
    reason: str = ""


@dataclass(kw_only=True)
class RankRecovered(Event):
    """A rank goes on with others: somebody has gone, or come."""

    event = "recovered"
    rank: int
    """From now on."""
    ranks: int
    generation: int
    members: list[str]
    """Who is in, by rank."""
    step: int
    """The one that all go on from."""
    seconds: FiniteFloat
    """From when this rank noticed until all were ready to go on."""
    reason: str
    owed: int = 0
    """Samples whose work is in nobody's model any more; they come next."""


@dataclass(kw_only=True)
class RankWaiting(Event):
    """A rank can't train until others are there."""

    event = "waiting"
    rank: int
    message: str


@dataclass(kw_only=True)
class RankServing(Event):
    """A rank holds parameters from now on, instead of training."""

    event = "serving"


@dataclass(kw_only=True)
class Stepped(Event):
    """A rank has done a step."""

    event = "step"
    step: int
    progress: FiniteFloat
    """0 to 1."""
    epoch: FiniteFloat
    loss: FiniteFloat | None
    """None for a rank that had no samples yet."""
    samples: int
    """Of this rank in this step."""
    seconds: dict[str, FiniteFloat]
    """By span: data, forward, backward, exchange (own work), wait (for others), update."""
    bytes_sent: int
    """Since the start."""
    messages_sent: int

    def to_json(self) -> str:
        return step_line(**vars(self))


def step_line(
    time: float,
    step: int,
    progress: float,
    epoch: float,
    loss: float | None,
    samples: int,
    seconds: Mapping[str, float],
    bytes_sent: int,
    messages_sent: int,
) -> str:
    """A `Stepped` as JSON, from its fields in their order.

    There is one of these for every step: written by hand it takes a third of the time, and without making the event
    first, half of that. Nobody needs more digits of a time than microseconds.
    """
    spans = ", ".join([f'"{name}": {value:.7f}' for name, value in seconds.items()])
    known = "null" if loss is None or not math.isfinite(loss) else repr(loss)
    return (
        f'{{"event": "step", "time": {time:.6f}, "step": {step}, "progress": {progress:.9g}, '
        f'"epoch": {epoch:.9g}, "loss": {known}, "samples": {samples}, "seconds": {{{spans}}}, '
        f'"bytes_sent": {bytes_sent}, "messages_sent": {messages_sent}}}'
    )


@dataclass(kw_only=True)
class Sampled(Event):
    """What a rank's process used since the last sample, or since it began to train."""

    event = "sample"
    seconds: FiniteFloat
    """Since the last sample."""
    cpu_seconds: FiniteFloat
    memory_bytes: int
    """Resident now."""
    bytes_received: int | None
    """Through the interfaces of the rank's host, headers included; None where ranks share them."""
    bytes_sent: int | None
    watts: FiniteFloat
    """On average since the last sample."""
    estimated: bool
    """Whether `watts` is computed from the CPU time instead of read from a counter."""


@dataclass(kw_only=True)
class Powered(Event):
    """What the whole machine's counters say, in a file of their own; only where there are counters."""

    event = "power"
    seconds: FiniteFloat
    """Since the last sample."""
    watts: dict[str, FiniteFloat]
    """By device, such as package-0 or gpu-0: on average since the last sample."""


@dataclass(kw_only=True)
class Evaluated(Event):
    """The model was tested."""

    event = "evaluated"
    step: int
    epoch: FiniteFloat
    metrics: dict[str, float]
    """By name; the first that is not the loss stands for all, where one number must."""
    seconds: FiniteFloat
    lower_is_better: list[str] = field(default_factory=list)
    """The names of metrics of which less is better."""
    tables: dict[str, list[list[float]]] = field(default_factory=dict)
    """Of metrics that are more than a number, such as a confusion matrix."""


@dataclass(kw_only=True)
class Finished(Event):
    """A rank is done."""

    event = "finished"
    steps: int
    samples: int
    seconds: FiniteFloat
    """Of training: from the first step to the end, without evaluations."""
    work_seconds: FiniteFloat
    wait_seconds: FiniteFloat
    bytes_sent: int
    messages_sent: int
    interface: dict[str, int] | None = None
    """What went through the interfaces of the rank's host during training: bytes_sent, bytes_received, packets_sent,
    packets_received, payload_sent (see `measure/interfaces.py`); None where ranks share them."""
    notes: dict[str, Any] = field(default_factory=dict)
    """What the strategy found out, such as the staleness histogram of a server."""
    digest: str | None = None
    """Of the parameters at the end: ranks with the same one have the same bits."""


@dataclass(kw_only=True)
class Failed(Event):
    """A rank has failed."""

    event = "failed"
    rank: int
    step: int
    kind: str
    message: str
    traceback: str
    """Empty for errors whose message says it all."""
    consequence: bool
    """Whether it failed only because another rank did."""
