"""What a finished run has learned: its workload, and its model with the weights that it ended with.

trained = load_trained(Path("runs/20260101-120000-digits-ring-4"))
trained.model(pictures)
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import nn

from minga.errors import ConfigError, RunError
from minga.experiment import Experiment, load
from minga.workload import Workload, load_workload

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
    path = run / "model.safetensors"
    if not path.is_file():
        raise ConfigError(f"{run} has no model.safetensors: it is not finished (minga train --resume {run} goes on)")
    workload = load_workload(experiment.workload, data if data is not None else experiment.data)
    model = workload.model()
    try:
        model.load_state_dict(load_file(path))
    except (OSError, SafetensorError) as error:
        raise RunError(f"{path} can't be read: {error}") from None
    except RuntimeError as error:  # names or shapes that don't fit
        raise RunError(
            f"{path} does not fit the model that {experiment.workload} has now; was its file or its data changed? "
            f"{str(error).splitlines()[-1].strip()}"
        ) from None
    return Trained(experiment, workload, model.eval())
