"""Minga: distributed training of PyTorch models on the machines that people really have.

import minga
summary = minga.run(minga.Experiment(workload="digits", strategy="ring", cluster=minga.Cluster(nodes=2)))
"""

from minga.experiment import Cluster, Experiment, Training
from minga.own_loop import OwnLoop, join
from minga.runner import run
from minga.strategies import Strategy
from minga.workload import Workload

__all__ = ["Cluster", "Experiment", "OwnLoop", "Strategy", "Training", "Workload", "join", "run"]
__version__ = "0.1.0"
