"""`run(experiment)`: the one way in, for Python, the command line and everything built on them."""

from __future__ import annotations

import torch

from minga.errors import ConfigError, unknown
from minga.experiment import Experiment
from minga.launch.local import launch_local
from minga.measure.power import machine_power
from minga.report.live import View
from minga.report.summary import Summary, summarise
from minga.run_directory import make_run_directory
from minga.spec import describe
from minga.user_files import check_file
from minga.workloads import WORKLOADS

__all__ = ["run"]


def run(experiment: Experiment, view: View | None = None) -> Summary:
    """Train as the experiment says; what came out. The run's directory has everything else."""
    if ".py" in experiment.workload:
        check_file(experiment.workload)
    elif experiment.workload not in WORKLOADS:
        raise unknown("workload", experiment.workload, WORKLOADS, "A workload of your own: file.py:name.")
    if experiment.cluster.device == "cuda" and not torch.cuda.is_available():
        raise ConfigError("cluster.device is cuda, but torch finds no GPU here (minga doctor tells more); use cpu")
    view = view or View()
    directory = make_run_directory(experiment)
    nodes = experiment.cluster.nodes
    strategy = describe(experiment.chosen_strategy)
    title = f"{experiment.workload}, {nodes} node{'s' if nodes > 1 else ''}, {strategy}"
    view.begin(directory, title)
    interval, gpus = experiment.measuring.interval_seconds, experiment.cluster.device == "cuda"
    with machine_power(directory, interval_seconds=interval, gpus=gpus):
        launch_local(experiment, directory, view.tick)
    summary = summarise(directory, experiment)
    assert summary is not None, "every rank ended well, yet none began"
    return summary
