"""Meters in real processes: workers, servers, scripts with a loop of their own."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from minga import Cluster, Experiment, Training, run
from minga.engines.scripts import run_script
from minga.measure.event_reader import event_files, read_events
from minga.measure.events import Finished, Sampled
from minga.runs.experiment import Measuring

MEASURING = Measuring(interval_seconds=0.1, idle_watts=3.0, core_watts=7.0)


@pytest.mark.slow
def test_each_process_is_sampled_once_while_it_trains_or_serves(tmp_path: Path) -> None:
    for strategy, sampled in {"ps:servers=1": [0, 1, 2], "ps:servers=1,placement=beside": [0, 1]}.items():
        summary = run(
            Experiment(
                workload="digits",
                strategy=strategy,
                cluster=Cluster(nodes=2),
                training=Training(epochs=3),
                measuring=MEASURING,
                runs=str(tmp_path),
            )
        )
        assert [rank.rank for rank in summary.ranks if rank.cpu_seconds] == sampled
        for path, rank in zip(event_files(Path(summary.run)), summary.ranks, strict=True):
            events = list(read_events(path))
            samples = [event for event in events if isinstance(event, Sampled)]
            if rank.rank not in sampled:
                assert not samples
                assert rank.joules is None
                continue
            kinds = [event.event for event in events]
            assert kinds.index("started") < kinds.index("sample")
            assert max(index for index, kind in enumerate(kinds) if kind == "sample") < kinds.index("finished")
            finished = next(event for event in events if isinstance(event, Finished))
            covered = sum(sample.seconds for sample in samples)
            assert covered == pytest.approx(finished.seconds, abs=0.1)
            for first, second in itertools.pairwise(samples):
                assert second.time - second.seconds >= first.time - 1e-6
            assert rank.joules == pytest.approx(3 * covered + 7 * rank.cpu_seconds)
            assert rank.memory_bytes > 50_000_000
        assert summary.evaluate_seconds > 0
        if summary.energy is not None and summary.energy.estimated:
            assert summary.energy.joules == pytest.approx(sum(rank.joules or 0.0 for rank in summary.ranks))


def test_a_script_with_its_own_loop_is_sampled_too(tmp_path: Path) -> None:
    script = Path(__file__).parents[2] / "examples" / "own_loop.py"
    described = Experiment(
        workload=str(script), strategy="ring", cluster=Cluster(nodes=2), measuring=MEASURING, runs=str(tmp_path)
    )
    summary = run_script(described, script, ["--epochs", "2"], show=False)
    assert summary is not None
    assert summary.energy is not None
    for rank in summary.ranks:
        assert rank.cpu_seconds > 0
        assert rank.joules is not None
