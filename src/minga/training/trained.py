"""What a finished run has learned: its workload, and its model with the weights that it ended with.

trained = load_trained(Path("runs/20260101-120000-digits-ring-4"))
trained.model(pictures)
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from torch import nn

from minga.errors import ConfigError, RunError
from minga.model.weights import take_weights, weights_file
from minga.runs.experiment import Experiment, load
from minga.runs.workload import Workload, load_workload

__all__ = ["Trained", "load_trained"]


@dataclass(frozen=True)
class Trained:
    """A run's outcome, ready to be used."""

    experiment: Experiment
    workload: Workload
    model: nn.Module
    """In evaluation mode."""


def load_trained(run: Path, *, data: str | None = None) -> Trained:
    """Read a run's directory; `data`: where its data set lies now, if not where it lay then."""
    if not (run / "experiment.toml").is_file():
        raise ConfigError(f"{run} is no directory of a run: it has no experiment.toml")
    experiment = load(run / "experiment.toml")
    weights_file(run)  # for its errors, before data are read
    workload = load_workload(experiment.workload, data if data is not None else experiment.data)
    model = workload.model()
    try:
        take_weights(model, run)
    except ConfigError as error:
        raise RunError(
            f"{run} can't be used with the model that {experiment.workload} has now; was its file or its data changed? "
            f"{error}"
        ) from None
    return Trained(experiment, workload, model.eval())
