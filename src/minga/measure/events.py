"""The events of a run: one JSON line each, one file for each rank. Everything downstream reads these.

{"event": "step", "step": 12, "epoch": 0, "loss": 0.31, "seconds": {"forward": 0.002, ...}, ...}
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

__all__ = [
    "CheckpointFailed",
    "Checkpointed",
    "Evaluated",
    "Event",
    "Failed",
    "Finished",
    "FoundNonFinite",
    "Powered",
    "Recovered",
    "Resumed",
    "Sampled",
    "Serving",
    "Started",
    "Stepped",
    "Stopped",
    "Waiting",
    "event_files",
    "machine_event_file",
    "read_events",
    "step_line",
]


@dataclass(kw_only=True)
class Event:
    """Something that happened on a rank. Not frozen: that would double the time that making one takes."""

    event: ClassVar[str]
    time: float
    """Seconds on the transport's clock."""

    def to_json(self) -> str:
        # Not dataclasses.asdict, which copies everything and takes longer than all the rest of recording a step.
        return json.dumps({"event": self.event, **vars(self)})


@dataclass(kw_only=True)
class Started(Event):
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
class Resumed(Event):
    """A rank goes on from a checkpoint; the events before it in the file are those until then."""

    event = "resumed"
    rank: int
    ranks: int
    pid: int
    step: int
    checkpoint: str


@dataclass(kw_only=True)
class Checkpointed(Event):
    """A rank has written its part of a checkpoint."""

    event = "checkpoint"
    step: int
    checkpoint: str
    bytes: int
    taking_seconds: float
    """Of training, for a copy of what is written."""
    writing_seconds: float
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
    """A rank's loss or gradients were no numbers; the step is left out."""

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
class Recovered(Event):
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
    seconds: float
    """From when this rank noticed until all were ready to go on."""
    reason: str
    owed: int = 0
    """Samples whose work is in nobody's model any more; they come next."""


@dataclass(kw_only=True)
class Waiting(Event):
    """A rank can't train until others are there."""

    event = "waiting"
    rank: int
    message: str


@dataclass(kw_only=True)
class Serving(Event):
    """A rank holds parameters from now on, instead of training."""

    event = "serving"


@dataclass(kw_only=True)
class Stepped(Event):
    """A rank has done a step."""

    event = "step"
    step: int
    progress: float
    """0 to 1."""
    epoch: float
    loss: float | None
    """None for a rank that had no samples yet."""
    samples: int
    """Of this rank in this step."""
    seconds: dict[str, float]
    """By span: data, forward, backward, exchange (own work), wait (for others), update."""
    bytes_sent: int
    """Since the start."""
    messages_sent: int

    def to_json(self) -> str:
        return step_line(
            self.time,
            self.step,
            self.progress,
            self.epoch,
            self.loss,
            self.samples,
            self.seconds,
            self.bytes_sent,
            self.messages_sent,
        )


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
    seconds: float
    """Since the last sample."""
    cpu_seconds: float
    memory_bytes: int
    """Resident now."""
    bytes_received: int | None
    """Through the interfaces of the rank's host, headers included; None where ranks share them."""
    bytes_sent: int | None
    watts: float
    """On average since the last sample."""
    estimated: bool
    """Whether `watts` is computed from the CPU time instead of read from a counter."""


@dataclass(kw_only=True)
class Powered(Event):
    """What the whole machine's counters say, in a file of their own; only where there are counters."""

    event = "power"
    seconds: float
    """Since the last sample."""
    watts: dict[str, float]
    """By device, such as package-0 or gpu-0: on average since the last sample."""


@dataclass(kw_only=True)
class Evaluated(Event):
    """The model was tested."""

    event = "evaluated"
    step: int
    epoch: float
    metrics: dict[str, float]
    """By name; the first that is not the loss stands for all, where one number must."""
    seconds: float
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
    seconds: float
    """Of training: from the first step to the end, without evaluations."""
    work_seconds: float
    wait_seconds: float
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


def event_files(run: Path) -> list[Path]:
    """The event files of a run, by rank."""
    return sorted((run / "events").glob("rank-*.jsonl"), key=lambda path: int(path.stem.removeprefix("rank-")))


def machine_event_file(run: Path) -> Path:
    """Where the power of the whole machine goes."""
    return run / "events" / "machine.jsonl"


def read_events(path: Path) -> Iterator[dict[str, Any]]:
    """The events in a file; a line that a crash cut short is passed over."""
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            if line.endswith("\n"):
                yield json.loads(line)
