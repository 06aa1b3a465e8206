"""Does overlapped averaging hide the network? Exchanges that take 80 % of computing, against computing alone.

python benchmarks/overlap.py          # about six minutes; Linux, as root or with user namespaces
"""

from __future__ import annotations

import math
import statistics
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import harness

from minga import Cluster, Experiment, Training, run
from minga.measure.event_reader import event_files, read_events
from minga.measure.events import Stepped
from minga.runs.network import Network

WORKLOAD = f"{Path(__file__).parent / 'problems.py'}:small_convolutions"
PARAMETER_BYTES = 421_642 * 4
BANDWIDTHS = [10e6, 30e6]
SHARE = 0.8
PERIODS = 5
REPETITIONS = 3


def seconds_of_a_step(strategy: str, bandwidth: float, period: int) -> float:
    """Of whole periods, of the slower rank; the first period, in which nothing is under way yet, does not count."""
    with tempfile.TemporaryDirectory() as folder:
        summary = run(
            Experiment(
                workload=WORKLOAD,
                strategy=strategy,  # type: ignore[arg-type]
                cluster=Cluster(nodes=2, network=Network(bandwidth=bandwidth), pin=True, transport="tcp"),
                training=Training(steps=(PERIODS + 1) * period, evaluate_every=0),
                runs=folder,
            )
        )
        times = [
            [event.time for event in read_events(path) if isinstance(event, Stepped)]
            for path in event_files(Path(summary.run))
        ]
    return max((moments[-1] - moments[period - 1]) / (PERIODS * period) for moments in times)


def main() -> None:
    rows: list[dict[str, Any]] = []
    step = seconds_of_a_step("local_sgd:period=1000000", BANDWIDTHS[0], period=20)
    for bandwidth in BANDWIDTHS:
        exchange = PARAMETER_BYTES * 8 / bandwidth
        period = math.ceil(exchange / (SHARE * step))
        contestants = {
            "computing alone": "local_sgd:period=1000000",
            "overlapped": f"local_sgd:period={period},overlap={period}",
            "waiting": f"local_sgd:period={period}",
        }
        seconds = harness.alternate(
            {name: partial(seconds_of_a_step, each, bandwidth, period) for name, each in contestants.items()},
            REPETITIONS,
        )
        alone = statistics.median(seconds["computing alone"])
        for name, strategy in contestants.items():
            rows.append(
                {
                    "Mbit/s": bandwidth / 1e6,
                    "averaging": name,
                    "strategy": strategy,
                    "ms of a step": 1000 * statistics.median(seconds[name]),
                    "to computing alone": harness.median_ratio(seconds, name, "computing alone"),
                    "exchange / computing": exchange / (period * alone),
                    "repetitions": REPETITIONS,
                }
            )
    harness.save("overlap", rows, "two hosts, a core each; exchange: bytes of the parameters over the asked bandwidth")


if __name__ == "__main__":
    main()
