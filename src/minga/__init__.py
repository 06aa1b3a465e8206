"""Minga: distributed training of PyTorch models on the machines that people really have.

import minga
summary = minga.run(minga.Experiment(workload="digits", strategy="ring", cluster=minga.Cluster(nodes=2)))
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from minga.clipping import clipped
    from minga.codecs import Codec
    from minga.comm import Transport, all_reduce_mean, all_reduce_sum, broadcast
    from minga.data.prepared.dataset import PreparedDataset
    from minga.evaluate import Metric
    from minga.experiment import Cluster, Experiment, Training
    from minga.launch.functions import Launched, launch
    from minga.layout import Bucket
    from minga.own_loop import OwnLoop, join
    from minga.replica import Replica
    from minga.report.inline import show
    from minga.report.notebook_view import live_view
    from minga.report.summary import Summary
    from minga.runner import run
    from minga.strategies import Strategy
    from minga.study import Study, load_study, run_study
    from minga.workload import FurtherTest, Workload

__all__ = [
    "Bucket",
    "Cluster",
    "Codec",
    "Experiment",
    "FurtherTest",
    "Launched",
    "Metric",
    "OwnLoop",
    "PreparedDataset",
    "Replica",
    "Strategy",
    "Study",
    "Summary",
    "Training",
    "Transport",
    "Workload",
    "all_reduce_mean",
    "all_reduce_sum",
    "broadcast",
    "clipped",
    "join",
    "launch",
    "live_view",
    "load_study",
    "run",
    "run_study",
    "show",
]
__version__ = "0.1.0"

# Where each name lives. They are imported when they are used: `minga --help` should not wait for torch, and
# `minga doctor` must be able to say that torch is missing.
_HOMES = {
    "Bucket": "minga.layout",
    "Cluster": "minga.experiment",
    "Codec": "minga.codecs",
    "Experiment": "minga.experiment",
    "FurtherTest": "minga.workload",
    "Launched": "minga.launch.functions",
    "Metric": "minga.evaluate",
    "OwnLoop": "minga.own_loop",
    "PreparedDataset": "minga.data.prepared.dataset",
    "Replica": "minga.replica",
    "Strategy": "minga.strategies",
    "Study": "minga.study",
    "Summary": "minga.report.summary",
    "Training": "minga.experiment",
    "Transport": "minga.comm",
    "Workload": "minga.workload",
    "all_reduce_mean": "minga.comm",
    "all_reduce_sum": "minga.comm",
    "broadcast": "minga.comm",
    "clipped": "minga.clipping",
    "join": "minga.own_loop",
    "launch": "minga.launch.functions",
    "live_view": "minga.report.notebook_view",
    "load_study": "minga.study",
    "run": "minga.runner",
    "run_study": "minga.study",
    "show": "minga.report.inline",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'minga' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
