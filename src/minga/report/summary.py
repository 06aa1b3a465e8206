"""A finished run in one object: what `--json` prints and tables are made of."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic_core import from_json, to_json

from minga.errors import UsageError
from minga.measure.energy import FROM_CPU_TIME, Energy, PowerSample, joules_of, together
from minga.measure.event_reader import SIMULATED
from minga.measure.events import Finished, Powered, Sampled
from minga.measure.metric_names import main_metric
from minga.report.dataset.settings import in_lab, read_settings
from minga.report.follow import Follower, RankProgress

__all__ = ["RankSummary", "Summary", "read_network", "summarise", "summary_of"]


@dataclass(frozen=True, kw_only=True)
class RankSummary:
    """One rank of a finished run."""

    rank: int
    role: str
    steps: int
    samples: int
    loss: float | None
    """Of its last step."""
    work_seconds: float
    wait_seconds: float
    bytes_sent: int
    messages_sent: int
    phases: dict[str, float]
    """Seconds by span: data, forward, backward, exchange, wait, update."""
    host: str | None = None
    """In a lab: h1, h2, ..."""
    cpu_seconds: float = 0.0
    """Of its process during training; 0 for a server beside a worker, which counts for both."""
    memory_bytes: int = 0
    """Resident memory of its process at its peak."""
    joules: float | None = None
    """Of its process as a host of its own; always an estimate."""
    joules_estimated: bool = True
    """Goes with `joules` wherever that is shown."""
    interface: dict[str, int] | None = None
    """In a lab, of its host: bytes_sent, bytes_received, packets_sent, packets_received, payload_sent."""


@dataclass(frozen=True, kw_only=True)
class Summary:
    """A finished run."""

    run: str
    workload: str
    strategy: str
    nodes: int
    seed: int
    batch: int
    accuracy: float | None
    """Where there is a metric of this name."""
    loss: float | None
    """On the test set; without one, the last loss of training."""
    metrics: dict[str, float]
    """Of the last evaluation."""
    training_loss: float | None
    parameters: int
    epochs: float
    steps: int
    samples: int
    seconds: float
    """Of training, without starting and evaluating."""
    samples_per_second: float
    bytes_sent: int
    messages_sent: int
    staleness: dict[str, int] | None
    """Parameter servers: how often a worker was how many steps ahead of the slowest when it got parameters."""
    updates_behind: dict[str, int] | None
    """Parameter servers: how often a gradient was how many updates behind when it was applied."""
    switched_after: int | None
    """`switch`: the last step of all-reduce."""
    ranks: list[RankSummary]
    bandwidth_asked: float | None = None
    """In a lab: bits of TCP payload per second, and seconds one way; asked for and measured."""
    bandwidth_measured: float | None = None
    delay_asked: float | None = None
    delay_measured: float | None = None
    links_off: list[str] = field(default_factory=list)
    """Links of the lab that did not do what was asked, in words."""
    evaluate_seconds: float = 0.0
    """Of all evaluations, which are not in `seconds`."""
    changes: list[str] = field(default_factory=list)
    """Who has gone and come on the way, in words."""
    planned: list[dict[str, Any]] = field(default_factory=list)
    """`auto`: after which step it went on with which strategy."""
    simulated: bool = False
    """Whether time was virtual."""
    energy: Energy | None = None
    """Of training; it says whether it is an estimate."""
    energy_delay_product: float | None = None
    """Joule-seconds: energy times `seconds`; as much an estimate as `energy` is."""

    metric: str | None = None
    """The metric that stands for all: the workload's first; its loss if it has none."""
    tables: dict[str, list[list[float]]] = field(default_factory=dict)
    """Of the last evaluation: metrics that are more than a number, such as a confusion matrix."""
    malformed: dict[str, int] = field(default_factory=dict)
    """Lines of the run's files that were no events and were passed over, by file."""

    @property
    def quality(self) -> float | None:
        """The value of that metric."""
        return None if self.metric is None else self.metrics.get(self.metric)

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        """In a notebook: the result in a line and a table, instead of all fields."""
        from minga.report.numbers import count, duration, shown_metric, size
        from minga.report.pages.markup import grid, tag

        quality = {n: f"{v:.4f}" if n == "loss" else shown_metric(n, v) for n, v in self.metrics.items()}
        speed = {"steps": f"{self.steps:,}", "time": duration(self.seconds), "sent": size(self.bytes_sent)}
        facts = {**quality, **speed, "samples/s": f"{self.samples_per_second:,.0f}"}
        nodes = count(self.nodes, "node")
        table = grid(facts, [facts.values()])
        page = tag("div", tag("strong", self.workload), f", {nodes}, {self.strategy}", table)
        words = "   ".join(f"{name} {fact}" for name, fact in facts.items())
        return {"text/html": str(page), "text/plain": f"{self.workload}, {nodes}, {self.strategy}: {words}"}

    def to_dict(self) -> dict[str, Any]:
        """As plain values that JSON knows: NaN and infinities become None."""
        plain: dict[str, Any] = from_json(to_json(self, inf_nan_mode="null"))
        return plain


def summarise(run: Path) -> Summary | None:
    """Read the events of a finished run; None if no rank ever began to train."""
    follower = Follower(run)
    follower.read()
    settings, machine = read_settings(run, follower.facts), follower.read_machine_power()
    return summary_of(run, follower, settings, machine, read_network(run))


def summary_of(
    run: Path, follower: Follower, settings: Mapping[str, Any], machine: Sequence[Powered], network: Mapping[str, Any]
) -> Summary | None:
    """What the events of a run come to, once they have been read."""
    if follower.started is None:
        return None
    ranks = [follower.ranks[rank] for rank in sorted(follower.ranks)]
    trained = [state for state in ranks if state.samples]
    ended = [state.finished for state in ranks if state.finished is not None]
    seconds = max((state.training_seconds for state in trained), default=0.0)
    samples = sum(state.samples for state in ranks)
    evaluated = follower.evaluations[-1] if follower.evaluations else None
    metrics = evaluated.metrics if evaluated else {}
    first = sorted(ranks, key=lambda state: state.rank != follower.leader)
    training_loss = next((state.loss for state in first if state.loss is not None), None)
    switched = [after for end in ended if isinstance(after := end.notes.get("switched_after"), int)]
    planned = [plans for end in ended if isinstance(plans := end.notes.get("planned"), list)]
    energy = _energy_of_run(ranks, machine)
    return Summary(
        run=str(run),
        workload=settings["workload"],
        strategy=settings["strategy"],
        nodes=settings["cluster.nodes"],
        seed=settings["training.seed"],
        batch=follower.started.batch,
        accuracy=metrics.get("accuracy"),
        loss=metrics.get("loss", training_loss),
        metrics=metrics,
        training_loss=training_loss,
        parameters=follower.started.parameters,
        epochs=_epochs(follower, samples),
        steps=max(state.steps for state in ranks),
        samples=samples,
        seconds=seconds,
        samples_per_second=samples / seconds if seconds else 0.0,
        bytes_sent=sum(state.bytes_sent for state in ranks),
        messages_sent=sum(end.messages_sent for end in ended),
        staleness=_histogram("staleness", ended),
        updates_behind=_histogram("updates_behind", ended),
        switched_after=max(switched, default=None),
        planned=planned[0] if planned else [],
        simulated=(run / SIMULATED).exists(),
        ranks=[
            RankSummary(
                rank=state.rank,
                role=state.role,
                steps=state.steps,
                samples=state.samples,
                loss=state.loss,
                work_seconds=state.work_seconds,
                wait_seconds=state.wait_seconds,
                bytes_sent=state.bytes_sent,
                messages_sent=state.finished.messages_sent if state.finished else 0,
                phases=state.seconds,
                # Where events don't say it, all ranks of a lab have hosts of their own.
                host=state.host or (f"h{state.rank + 1}" if in_lab(settings) else None),
                cpu_seconds=sum(sample.cpu_seconds for sample in state.samplings),
                memory_bytes=max((sample.memory_bytes for sample in state.samplings), default=0),
                joules=_joules(state.samplings) if state.samplings else None,
                interface=state.finished.interface if state.finished else None,
            )
            for state in ranks
        ],
        bandwidth_asked=network.get("bandwidth_asked"),
        bandwidth_measured=network.get("bandwidth_measured"),
        links_off=network.get("off", []),
        delay_asked=network.get("delay_asked"),
        delay_measured=network.get("delay_measured"),
        evaluate_seconds=sum(evaluation.seconds for evaluation in follower.evaluations),
        changes=follower.changes,
        metric=main_metric(metrics, follower.facts.main_metric),
        tables=evaluated.tables if evaluated else {},
        energy=energy,
        energy_delay_product=energy.delay_product(seconds) if energy is not None else None,
        malformed=follower.malformed,
    )


def _epochs(follower: Follower, samples: int) -> float:
    """How often the data was seen; of a stream without a known length, as often as its end was reached."""
    assert follower.started is not None
    in_an_epoch = follower.started.samples
    if in_an_epoch is None:
        return max((state.epoch for state in follower.ranks.values()), default=0.0)
    return samples / in_an_epoch


def read_network(run: Path) -> dict[str, Any]:
    """What was asked of the lab's network and what was measured there; empty without a lab."""
    path = run / "network.json"
    if not path.is_file():
        return {}
    try:
        network = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        network = None
    if not isinstance(network, dict):
        raise UsageError(f"{path} is damaged; move it away, and the run is read as one without a lab")
    return network


def _histogram(name: str, ended: list[Finished]) -> dict[str, int] | None:
    """The counts of all servers together."""
    counts: Counter[int] = Counter()
    for end in ended:
        note = end.notes.get(name)
        if isinstance(note, dict):  # strategies may note what they like
            counts.update({int(key): n for key, n in note.items() if key.isdigit() and isinstance(n, int)})
    return {str(value): counts[value] for value in sorted(counts)} or None


def _energy_of_run(ranks: Sequence[RankProgress], machine: Sequence[Powered]) -> Energy | None:
    """Of the machine's counters, where there are some; otherwise the estimates of all processes together.

    The time that counts is when at least one rank trains or serves: that of the ranks' own samples, which leave out
    evaluations.
    """
    sampled = [event for state in ranks for event in state.samplings]
    if not sampled:
        return None
    if machine:
        devices = {device for event in machine for device in event.watts}
        gpus = {device for device in devices if device.startswith("gpu-")}
        source = "+".join(name for name, some in (("rapl", devices - gpus), ("nvml", gpus)) if some)
        windows = together(PowerSample.from_event(event).window for event in sampled)
        joules = joules_of([PowerSample.from_event(event) for event in machine], windows)
        return Energy(joules, estimated=False, source=source)
    return Energy(_joules(sampled), estimated=True, source=FROM_CPU_TIME)


def _joules(sampled: Sequence[Sampled]) -> float:
    """Of processes as hosts of their own, estimated."""
    return sum(event.watts * event.seconds for event in sampled)
