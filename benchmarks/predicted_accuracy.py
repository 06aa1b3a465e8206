"""Time to accuracy, predicted and measured: training in virtual time against training in the lab.

    MINGA_DATA=DIR python benchmarks/predicted_accuracy.py           # about ten minutes

Two nodes with a core each (Linux). Profile and costs of messages are those that `benchmarks/predictions.py` has
measured, or they are measured now.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import harness
import predictions
from predictions import WORKLOADS, Cell
from rich.console import Console
from rich.progress import track

from minga import Cluster, Experiment, Training, run
from minga.plan.candidates import Candidate
from minga.plan.cluster import PlannedCluster
from minga.plan.trial_run import first_reach, trial_run
from minga.strategies import Strategy

WORKLOAD = "CNN"
STRATEGIES = ["ring", "local_sgd:period=8", "ps:mode=ssp,staleness=3,placement=beside"]
BANDWIDTHS = [100.0, 1000.0]
TARGET = 0.85
EPOCHS = 4


def main() -> None:
    predictions.SCRATCH.mkdir(parents=True, exist_ok=True)
    profile, carrier = predictions.profile_of(WORKLOAD), predictions.carrier_of_this_machine()
    reference, batch = WORKLOADS[WORKLOAD]
    rows: list[dict[str, Any]] = []
    cells = [Cell(WORKLOAD, strategy, bandwidth, 0.0) for bandwidth in BANDWIDTHS for strategy in STRATEGIES]
    for cell in track(cells, console=Console(stderr=True)):
        strategy = Strategy.from_value(cell.strategy)
        cluster = PlannedCluster(nodes=2, network=cell.network, carrier=carrier)
        predicted = trial_run(Candidate(strategy, 2, batch), profile, cluster, target=TARGET, epochs=EPOCHS)
        with tempfile.TemporaryDirectory() as folder:
            summary = run(
                Experiment(
                    workload=reference,
                    strategy=strategy,
                    cluster=Cluster(nodes=2, network=cell.network, pin=True),
                    training=Training(epochs=EPOCHS, batch=batch),
                    runs=folder,
                )
            )
            measured = first_reach(Path(summary.run), TARGET)
        rows.append(
            {
                "strategy": cell.strategy,
                "Mbit/s": cell.bandwidth,
                "measured, s": measured.seconds,
                "predicted, s": predicted.seconds,
                "error": predicted.seconds / measured.seconds - 1 if predicted.seconds and measured.seconds else None,
                "epochs, measured": measured.epochs,
                "epochs, predicted": predicted.epochs,
                "best accuracy, measured": measured.best,
                "best accuracy, predicted": predicted.best,
            }
        )
    harness.save("predicted_accuracy", rows, f"{WORKLOAD}: seconds of training until the test accuracy is {TARGET}")


if __name__ == "__main__":
    main()
