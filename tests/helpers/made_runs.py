"""Complete, plausible run directories with numbers that are known: nothing here is measured.

make_run(tmp_path, nodes=4, bandwidth="10mbit", own_seconds=[1, 2, 1, 1])      # the second node is the straggler

python tests/helpers/made_runs.py /tmp/made      # a whole study, to look at a report
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from minga.base.config import build
from minga.base.units import parse_bandwidth
from minga.measure.events import (
    Evaluated,
    Event,
    Failed,
    Finished,
    Powered,
    RankRecovered,
    RankServing,
    Sampled,
    Started,
    Stepped,
)
from minga.runs.directory import SIMULATED, event_file, make_run_directory
from minga.runs.experiment import Experiment, with_overrides
from minga.training.run_log import run_facts

SAMPLES = 1000
PARAMETERS = 20_000
EVALUATION_SECONDS = 0.5


def make_run(
    place: Path,
    *,
    workload: str = "digits",
    nodes: int = 1,
    strategy: str | None = None,
    bandwidth: str | None = None,
    seed: int = 0,
    epochs: int = 4,
    own_seconds: float | Sequence[float] = 10.0,
    wait_seconds: float = 0.0,
    accuracies: Sequence[float] | None = None,
    metrics: Sequence[dict[str, float]] | None = None,
    lower_is_better: Sequence[str] = (),
    tables: dict[str, list[list[float]]] | None = None,
    watts: float = 15.0,
    estimated: bool = True,
    samples_every: float | None = 1.0,
    rate_measured: float = 1.0,
    simulated: bool = False,
    servers: int = 0,
    counters: bool = False,
    state: str = "finished",
    lost: int | None = None,
    settings: dict[str, Any] | None = None,
) -> Path:
    """A run in which the slowest node's own work and `wait_seconds` make up the time; faster ones wait for it.

    `lost`: a rank that is killed after half of the steps; the others go on.
    """
    table: dict[str, Any] = {"workload": workload, "runs": str(place)}
    values: dict[str, Any] = {"cluster.nodes": nodes, "training.seed": seed, "training.epochs": epochs}
    strategy = strategy or ("native" if nodes > 1 else None)
    values |= {"strategy": strategy} if strategy else {}
    values |= {"cluster.network.bandwidth": bandwidth} if bandwidth else {}
    values |= {"cluster.transport": "tcp"} if lost is not None else {}
    experiment = build(Experiment, with_overrides(table, {**values, **(settings or {})}))
    run = make_run_directory(experiment)
    if simulated:
        (run / SIMULATED).write_text("{}")
    own = [float(own_seconds)] * nodes if isinstance(own_seconds, int | float) else list(own_seconds)
    seconds = max(own) + wait_seconds
    if metrics is None:
        reached = accuracies or [0.95 - 0.5 * math.exp(-epoch) for epoch in range(1, epochs + 1)]
        metrics = [{"accuracy": each, "loss": 2 * (1 - each)} for each in reached]
    for rank in range(nodes):
        events = _worker(
            experiment, rank, nodes + servers, own[rank], seconds, metrics, watts, estimated, samples_every, bandwidth
        )
        for event in events:
            if isinstance(event, Evaluated):
                event.lower_is_better, event.tables = list(lower_is_better), tables or {}
        if lost is not None:
            first = 0 if lost else 1
            evaluated = _worker(
                experiment, 0, nodes + servers, own[0], seconds, metrics, watts, estimated, None, bandwidth
            )
            events = _with_one_lost(events, rank, lost, nodes + servers, evaluated if rank == first else [])
        if state == "unfinished":
            events = [event for event in events if event.event != "finished"]
        if state == "failed":
            kind = {"kind": "RunError", "message": "the disk is full", "traceback": "", "consequence": rank > 0}
            events = [*events[:4], Failed(time=105.0, rank=rank, step=3, **kind)]
        _write(run, rank, events)
    for rank in range(nodes, nodes + servers):
        _write(run, rank, _server(experiment, rank, nodes + servers, seconds))
    if bandwidth:
        _network(run, float(parse_bandwidth(bandwidth)), nodes + servers, rate_measured)
    if counters:
        powered = [
            Powered(time=100.0 + second, seconds=1.0, watts={"package-0": 40.0}) for second in range(int(seconds))
        ]
        (run / "events" / "machine.jsonl").write_text("".join(event.to_json() + "\n" for event in powered))
    return run


def _write(run: Path, rank: int, events: Sequence[Event]) -> None:
    event_file(run, rank).write_text("".join(event.to_json() + "\n" for event in events), encoding="utf-8")


def _started(experiment: Experiment, rank: int, ranks: int) -> Started:
    epochs = experiment.training.epochs
    fixed: dict[str, Any] = {"pid": 1, "parameters": PARAMETERS, "samples": SAMPLES, "batch": 50, "steps": None}
    return Started(
        time=100.0, rank=rank, ranks=ranks, epochs=epochs, **fixed, **vars(run_facts(experiment, None, rank))
    )


def _worker(
    experiment: Experiment,
    rank: int,
    ranks: int,
    own: float,
    seconds: float,
    metrics: Sequence[dict[str, float]],
    watts: float,
    estimated: bool,
    samples_every: float | None,
    bandwidth: str | None,
) -> list[Event]:
    nodes, epochs = experiment.cluster.nodes, experiment.training.epochs or 1
    steps_of_epoch, several = 5, ranks > 1
    steps = epochs * steps_of_epoch
    # Half of the own work is backward; the rest in round parts, so that sums can be done by hand.
    parts = {"data": 0.1, "forward": 0.25, "backward": 0.5, "update": 0.05, "exchange": 0.1}
    span = {name: own * part / steps for name, part in parts.items()}
    span["wait"] = (seconds - own) / steps
    sent = 8 * PARAMETERS * (nodes - 1) if several else 0
    events: list[Event] = [_started(experiment, rank, ranks)]
    clock = 100.0
    for step in range(1, steps + 1):
        clock += seconds / steps
        events.append(
            Stepped(
                time=clock,
                step=step,
                progress=step / steps,
                epoch=step / steps_of_epoch,
                loss=2.0 / step,
                samples=SAMPLES // steps_of_epoch // nodes,
                seconds=span,
                bytes_sent=step * sent,
                messages_sent=2 * step * several,
            )
        )
        last = step == steps
        if last:
            events.append(
                Finished(
                    time=clock,
                    steps=steps,
                    samples=epochs * steps_of_epoch * (SAMPLES // steps_of_epoch // nodes),
                    seconds=seconds,
                    work_seconds=own,
                    wait_seconds=seconds - own,
                    bytes_sent=step * sent,
                    messages_sent=2 * step * several,
                )
            )
        if step % steps_of_epoch == 0 and metrics:
            clock += EVALUATION_SECONDS
            epoch = step // steps_of_epoch
            if rank == 0:
                values = metrics[min(epoch, len(metrics)) - 1]
                events.append(
                    Evaluated(time=clock, step=step, epoch=float(epoch), metrics=values, seconds=EVALUATION_SECONDS)
                )
    if samples_every:
        taken = max(int(seconds / samples_every), 1)
        for number in range(1, taken + 1):
            events.append(
                Sampled(
                    time=100.0 + number * seconds / taken,
                    seconds=seconds / taken,
                    cpu_seconds=own / taken * (1 + 0.02 * math.sin(number + rank)),
                    memory_bytes=int(200e6 + 2e6 * min(number, 20) + 5e6 * rank),
                    bytes_sent=int(1.05 * steps * sent / taken) if bandwidth else None,
                    bytes_received=int(1.05 * steps * sent / taken) if bandwidth else None,
                    watts=watts,
                    estimated=estimated,
                )
            )
    return events


def _with_one_lost(
    events: Sequence[Event], rank: int, lost: int, ranks: int, of_the_first: Sequence[Event]
) -> list[Event]:
    """A rank's events where another (or itself) is killed half way; from then on, the first that is left evaluates."""
    half = max(event.time for event in events) / 2 + 50.0
    before = [event for event in events if event.time < half]
    if rank == lost:
        return before
    members = [f"node-{each}" for each in range(ranks) if each != lost]
    place = members.index(f"node-{rank}")
    counts: dict[str, Any] = {"generation": 2, "step": 10, "seconds": 0.1, "reason": "it is gone"}
    regrouped = RankRecovered(time=half, rank=place, ranks=ranks - 1, members=members, **counts)
    after = [event for event in events if event.time >= half and event.event != "evaluated"]
    evaluated = [event for event in of_the_first if event.time >= half and event.event == "evaluated"]
    return [*before, regrouped, *sorted([*after, *evaluated], key=lambda event: event.time)]


def _server(experiment: Experiment, rank: int, ranks: int, seconds: float) -> list[Event]:
    counts: dict[str, Any] = {"bytes_sent": 4_000_000, "messages_sent": 100, "steps": 0, "samples": 0}
    done = Finished(time=100 + seconds, seconds=seconds, work_seconds=1.0, wait_seconds=seconds - 1.0, **counts)
    return [_started(experiment, rank, ranks), RankServing(time=100.0), done]


def _network(run: Path, asked: float, hosts: int, measured: float) -> None:
    rates = {"up_asked": asked, "up_measured": measured * asked, "down_asked": asked, "down_measured": measured * asked}
    delay = {"delay_asked": 0.005, "delay_measured": 0.0052}
    links = [{"host": f"h{number}", **rates, **delay} for number in range(1, hosts + 1)]
    table = {"bandwidth_asked": asked, "bandwidth_measured": measured * asked, "emulation": "netem", "links": links}
    (run / "network.json").write_text(json.dumps({**delay, **table}))


def make_study(place: Path, cells: Sequence[tuple[dict[str, Any], Sequence[Path]]], failed: str | None = None) -> Path:
    """A study's results about runs that lie in `place`/runs; `failed`: the label of one more cell, which failed."""
    (place / "study.toml").write_text('name = "made"\n')
    lines = []
    for number, (values, runs) in enumerate(cells):
        for repetition, run in enumerate(runs):
            where = {"cell": f"c{number}", "label": ", ".join(map(str, values.values())), "repetition": repetition}
            rest = {"values": values, "environment": None, "state": "done", "error": None, "wall_seconds": 1.0}
            lines.append({**where, **rest, "run": str(run.relative_to(place))})
    if failed:
        why = {"state": "failed", "error": "rank 1 failed: out of memory", "run": None, "environment": None}
        lines.append({"cell": "bad", "label": failed, "values": {}, "repetition": 0, **why})
    (place / "results.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return place


def plausible_study(place: Path, strategies: Sequence[str], bandwidths: Sequence[str], repetitions: int = 3) -> Path:
    """1, 2 and 4 nodes x bandwidths x strategies: what a slow network does to synchronous training."""
    place.mkdir(parents=True, exist_ok=True)
    cells = []
    for bandwidth in bandwidths:
        rate = float(parse_bandwidth(bandwidth))
        for nodes in (1, 2, 4):
            for strategy in strategies if nodes > 1 else ("single",):
                runs = []
                for seed in range(repetitions):
                    noise = 1 + 0.03 * math.sin(7 * seed + nodes)
                    own = [40.0 / nodes * noise] * nodes
                    if nodes == 4:
                        own[1] *= 2
                    factor = 1.0 if strategy != "ps:mode=sync" else 1.6
                    wait = 0.0 if nodes == 1 else factor * noise * (0.5 + 6e8 * (nodes - 1) / nodes / rate)
                    top = 0.97 - 0.012 * (nodes == 4) + 0.002 * math.sin(seed)
                    curve = [top - 0.6 * math.exp(-0.6 * epoch) for epoch in range(1, 9)]
                    runs.append(
                        make_run(
                            place / "runs",
                            nodes=nodes,
                            strategy=strategy,
                            bandwidth=bandwidth,
                            seed=seed,
                            epochs=8,
                            own_seconds=own,
                            wait_seconds=wait,
                            accuracies=curve,
                            servers=1 if strategy.startswith("ps") and nodes > 1 else 0,
                            rate_measured=0.93 if (bandwidth, nodes) == (bandwidths[0], 4) else 0.995,
                            watts=5 + 10 * max(own) / (max(own) + wait),
                        )
                    )
                cells.append(({"cluster.nodes": nodes, "bandwidth": bandwidth, "strategy": strategy}, runs))
    return make_study(place, cells, failed="4 nodes, 1 Mbit/s, mesh")


if __name__ == "__main__":
    plausible_study(Path(sys.argv[1]), ["native", "ring", "ps:mode=sync"], ["10mbit", "100mbit", "1gbit"])
