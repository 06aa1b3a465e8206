"""A finished run in one object: what `--json` prints and tables are made of."""

from __future__ import annotations

import dataclasses
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from minga.experiment import Experiment
from minga.report.follow import Follower
from minga.spec import describe

__all__ = ["RankSummary", "Summary", "summarise"]


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
    loss: float | None
    """On the test set; without one, the last loss of training."""
    metrics: dict[str, float]
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

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


def summarise(run: Path, experiment: Experiment) -> Summary:
    """Read the events of a finished run."""
    follower = Follower(run)
    follower.read()
    assert follower.started is not None
    ranks = [follower.ranks[rank] for rank in sorted(follower.ranks)]
    trained = [state for state in ranks if state.samples]
    ended = [state.finished for state in ranks if state.finished is not None]
    seconds = max(float(state.finished["seconds"]) for state in trained if state.finished is not None)
    samples = sum(state.samples for state in ranks)
    metrics = follower.evaluations[-1]["metrics"] if follower.evaluations else {}
    switched = [end["notes"]["switched_after"] for end in ended if "switched_after" in end["notes"]]
    return Summary(
        run=str(run),
        workload=experiment.workload,
        strategy=describe(experiment.chosen_strategy),
        nodes=experiment.cluster.nodes,
        seed=experiment.training.seed,
        batch=follower.started["batch"],
        accuracy=metrics.get("accuracy"),
        loss=metrics.get("loss", ranks[0].loss),
        metrics=metrics,
        training_loss=ranks[0].loss,
        parameters=follower.started["parameters"],
        epochs=samples / follower.started["samples"],
        steps=ranks[0].steps,
        samples=samples,
        seconds=seconds,
        samples_per_second=samples / seconds,
        bytes_sent=sum(end["bytes_sent"] for end in ended),
        messages_sent=sum(end["messages_sent"] for end in ended),
        staleness=_histogram("staleness", ended),
        updates_behind=_histogram("updates_behind", ended),
        switched_after=max(switched, default=None),
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
                messages_sent=state.finished["messages_sent"] if state.finished else 0,
                phases=state.seconds,
            )
            for state in ranks
        ],
    )


def _histogram(name: str, ended: list[dict[str, Any]]) -> dict[str, int] | None:
    """The counts of all servers together."""
    counts: Counter[int] = Counter()
    for end in ended:
        counts.update({int(value): count for value, count in end["notes"].get(name, {}).items()})
    return {str(value): counts[value] for value in sorted(counts)} or None
