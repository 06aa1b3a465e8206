"""What a finished run's files say in the end: energy, network, hosts, use of the machine."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from helpers.made_runs import make_run
from minga import Cluster, Experiment
from minga.cli.execute import print_summary
from minga.errors import UsageError
from minga.measure.event_reader import event_files, rank_of
from minga.measure.events import RunFacts
from minga.report.dataset.sources import find_runs
from minga.report.summary import Summary, summarise
from minga.runs.network import Network
from minga.training.run_log import run_facts

INTERFACE = {"bytes_sent": 10, "bytes_received": 20, "packets_sent": 1, "packets_received": 2, "payload_sent": 8}


def sample(time: float, seconds: float, cpu: float, memory: int, watts: float) -> dict[str, Any]:
    used = {"event": "sample", "time": time, "seconds": seconds, "cpu_seconds": cpu, "memory_bytes": memory}
    return {**used, "bytes_received": None, "bytes_sent": None, "watts": watts, "estimated": True}


def write(run: Path, *, machine: bool = False, network: bool = False) -> None:
    """Two ranks that train from 10 to 12 and (after an evaluation of a second) from 13 to 14."""
    (run / "events").mkdir(parents=True)
    for rank in range(2):
        events = [
            {"event": "started", "time": 10.0, "rank": rank, "ranks": 2, "samples": 32, "parameters": 10, "batch": 8}
            | {"pid": 1, "epochs": 1, "steps": None},
            {"event": "something new", "time": 10.5},
            sample(12.0, 2.0, 1.0, 5_000_000, 10.0),
            sample(14.0, 1.0, 0.5, 4_000_000, 20.0),
            {"event": "step", "time": 14.0, "step": 7, "progress": 1.0, "epoch": 1.0, "loss": 0.25, "samples": 16}
            | {"seconds": {"forward": 1.0, "wait": 0.5}, "bytes_sent": 100, "messages_sent": 9},
            {"event": "finished", "time": 14.0, "steps": 7, "samples": 16, "seconds": 3.0, "work_seconds": 2.5}
            | {"wait_seconds": 0.5, "bytes_sent": 100, "messages_sent": 9, "interface": INTERFACE, "notes": {}},
        ]
        if rank == 0:
            metrics = {"loss": 0.3, "accuracy": 0.875}
            events += [
                {"event": "evaluated", "time": when, "step": 7, "epoch": 1.0, "metrics": metrics, "seconds": 1.0}
                for when in (13.0, 15.5)
            ]
        lines = "".join(json.dumps(event) + "\n" for event in events)
        (run / "events" / f"rank-{rank}.jsonl").write_text(lines)
    if machine:  # 100 W all the time, from before the start until after the end
        events = [
            {"event": "power", "time": float(time), "seconds": 4.0, "watts": {"package-0": 70.0, "dram-0": 30.0}}
            for time in (9, 13, 17)
        ]
        (run / "events" / "machine.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    if network:
        measured = {
            "bandwidth_asked": 1e7,
            "bandwidth_measured": 9.98e6,
            "delay_asked": 0.005,
            "delay_measured": 0.0052,
        }
        (run / "network.json").write_text(json.dumps({**measured, "emulation": "netem", "links": []}))


def summary_of(run: Path, network: Network | None = None, strategy: str = "ring") -> Summary:
    """As `training` says it: what the strategy is, and which host is whose, is in the first event of each rank."""
    experiment = Experiment(workload="digits", strategy=strategy, cluster=Cluster(nodes=2, network=network))
    (run / "experiment.toml").write_text(experiment.to_toml())
    for path in event_files(run):
        first, *rest = path.read_text().splitlines(keepends=True)
        facts = run_facts(experiment, None, rank_of(path))
        path.write_text("".join([json.dumps({**json.loads(first), **vars(facts)}) + "\n", *rest]))
    summary = summarise(run)
    assert summary is not None
    return summary


def test_without_counters_energy_is_the_estimates_of_all_ranks(tmp_path: Path) -> None:
    write(tmp_path)
    summary = summary_of(tmp_path)
    found = summary.to_dict()
    assert found["energy"] == {"joules": 80.0, "estimated": True, "source": "estimated from CPU time"}
    assert found["energy_delay_product"] == pytest.approx(80 * 3)
    for rank in found["ranks"]:
        assert (rank["joules"], rank["joules_estimated"]) == (40.0, True)
        assert (rank["cpu_seconds"], rank["memory_bytes"]) == (1.5, 5_000_000)
        assert rank["interface"] == INTERFACE
        assert rank["host"] is None
    assert found["evaluate_seconds"] == 2.0
    assert found["bandwidth_asked"] is None


def test_counters_count_while_somebody_trains(tmp_path: Path) -> None:
    write(tmp_path, machine=True)
    found = summary_of(tmp_path).to_dict()
    # 100 W from 10 to 12 and from 13 to 14, once for both ranks.
    assert found["energy"] == {"joules": pytest.approx(300.0), "estimated": False, "source": "rapl"}
    assert found["ranks"][0]["joules_estimated"]


def test_gpus_are_named(tmp_path: Path) -> None:
    write(tmp_path, machine=True)
    path = tmp_path / "events" / "machine.jsonl"
    text = path.read_text()
    path.write_text(text.replace("dram-0", "gpu-0"))
    energy = summary_of(tmp_path).energy
    assert energy is not None
    assert energy.source == "rapl+nvml"
    path.write_text(text.replace("package-0", "gpu-1").replace("dram-0", "gpu-0"))
    energy = summary_of(tmp_path).energy
    assert energy is not None
    assert energy.source == "nvml"


def test_a_run_without_samples_has_no_energy(tmp_path: Path) -> None:
    write(tmp_path)
    for path in (tmp_path / "events").iterdir():
        path.write_text("".join(line for line in path.read_text().splitlines(True) if '"sample"' not in line))
    found = summary_of(tmp_path).to_dict()
    assert found["energy"] is None
    assert found["energy_delay_product"] is None
    assert found["ranks"][0]["joules"] is None


def test_the_network_as_asked_and_as_measured(tmp_path: Path) -> None:
    write(tmp_path, network=True)
    summary = summary_of(tmp_path, Network(bandwidth="10mbit", delay="5ms"))
    assert (summary.bandwidth_asked, summary.bandwidth_measured) == (1e7, 9.98e6)
    assert (summary.delay_asked, summary.delay_measured) == (0.005, 0.0052)
    assert [rank.host for rank in summary.ranks] == ["h1", "h2"]


def test_a_server_beside_a_worker_is_on_its_host(tmp_path: Path) -> None:
    write(tmp_path)
    (tmp_path / "events" / "rank-1.jsonl").rename(tmp_path / "events" / "rank-3.jsonl")
    summary = summary_of(tmp_path, Network(), strategy="ps:servers=2,placement=beside")
    assert [(rank.rank, rank.host) for rank in summary.ranks] == [(0, "h1"), (3, "h2")]


def test_people_see_energy_with_its_mark_and_both_rates(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, network=True)
    print_summary(summary_of(tmp_path, Network(bandwidth="10mbit", delay="5ms")))
    shown = capsys.readouterr().out
    assert "energy 80.0 J (estimated from CPU time)" in shown
    assert "energy-delay product 240.0 Js (estimated from CPU time)" in shown
    assert "bandwidth 10mbit asked, 9.98mbit measured" in shown
    assert "delay 5ms asked, 5.2ms measured" in shown
    assert "h2" in shown


def test_what_was_measured_is_shown_as_such(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, machine=True)
    print_summary(summary_of(tmp_path))
    shown = capsys.readouterr().out
    assert "energy 300.0 J (rapl)" in shown
    assert "estimated" not in shown
    assert "network:" not in shown
    assert "host" not in shown


MALFORMED = [
    '{"event":"finished","time":5.0}',
    '{"event": "step", "time": NaN, "step": 8}',
    '{"event": "sample", "time": 3.0, "seconds": "long"}',
    '{"event": "evaluated", "time": 9.0, "step": 7, "epoch": 1.0, "metrics": {"accuracy": "good"}, "seconds": 1.0}',
    '{"event": "recovered", "time": 9.0, "rank": 0, "ranks": 2, "members": 3}',
    '{"event": "failed", "time": 9.0}',
    '{"event": "st{"event": "serving", "time": 9.0}',
    "null",
]


@pytest.mark.parametrize("line", MALFORMED)
def test_a_finished_run_with_a_malformed_event_is_summarised_and_reported_and_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], line: str
) -> None:
    run = make_run(tmp_path, nodes=2, counters=True)
    whole = summarise(run)
    assert whole is not None and not whole.malformed
    for path in (run / "events" / "rank-1.jsonl", run / "events" / "machine.jsonl"):
        path.write_text(path.read_text() + line + "\n")
    summary = summarise(run)
    assert summary is not None
    assert summary.malformed == {"rank-1.jsonl": 1, "machine.jsonl": 1}
    assert dataclasses.replace(summary, malformed={}) == whole
    note = "2 malformed events passed over (1 in rank-1.jsonl, 1 in machine.jsonl): numbers may be incomplete."
    print_summary(summary)
    assert note in capsys.readouterr().out
    assert find_runs([run]).notes == [f"{run.name}: {note}"]


def test_notes_of_a_strategy_that_nobody_understands_are_left_out(tmp_path: Path) -> None:
    write(tmp_path)
    path = tmp_path / "events" / "rank-0.jsonl"
    odd = '"notes": {"staleness": {"a": 1, "2": 3}, "switched_after": "soon", "planned": 1, "updates_behind": "x"}'
    path.write_text(path.read_text().replace('"notes": {}', odd))
    summary = summary_of(tmp_path)
    assert (summary.staleness, summary.updates_behind) == ({"2": 3}, None)
    assert (summary.switched_after, summary.planned, summary.malformed) == (None, [], {})


def test_a_run_of_before_that_says_nothing_of_its_strategy_is_read(tmp_path: Path) -> None:
    run = make_run(tmp_path, nodes=2, bandwidth="10mbit", strategy="ring")
    facts = {field.name for field in dataclasses.fields(RunFacts)}
    for path in event_files(run):
        first, *rest = path.read_text().splitlines(keepends=True)
        plain = {name: value for name, value in json.loads(first).items() if name not in facts}
        path.write_text("".join([json.dumps(plain) + "\n", *rest]))
    (found,) = find_runs([run]).runs
    assert (found.lockstep, found.problem, found.finished.strategy) == (False, None, "ring")
    assert [rank.host for rank in found.finished.ranks] == ["h1", "h2"]


@pytest.mark.parametrize("content", ["{", "[]"])
def test_a_damaged_description_of_the_network_is_told(tmp_path: Path, content: str) -> None:
    write(tmp_path, network=True)
    (tmp_path / "network.json").write_text(content)
    with pytest.raises(UsageError, match=r"network\.json is damaged; move it away"):
        summary_of(tmp_path)
