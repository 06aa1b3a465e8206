"""Minga: distributed training of PyTorch models on the machines that people really have.

import minga
summary = minga.run(minga.Experiment(workload="digits", strategy="ring", cluster=minga.Cluster(nodes=2)))
"""

from minga.codecs import Codec
from minga.comm import Transport, all_reduce_mean, all_reduce_sum, broadcast
from minga.experiment import Cluster, Experiment, Training
from minga.layout import Bucket
from minga.own_loop import OwnLoop, join
from minga.replica import Replica
from minga.report.summary import Summary
from minga.runner import run
from minga.strategies import Strategy
from minga.workload import Workload

__all__ = [
    "Bucket",
    "Cluster",
    "Codec",
    "Experiment",
    "OwnLoop",
    "Replica",
    "Strategy",
    "Summary",
    "Training",
    "Transport",
    "Workload",
    "all_reduce_mean",
    "all_reduce_sum",
    "broadcast",
    "join",
    "run",
]
__version__ = "0.1.0"
