"""Minga: distributed training of PyTorch models on the machines that people really have.

import minga
summary = minga.run(minga.Experiment(workload="digits", strategy="ring", cluster=minga.Cluster(nodes=2)))
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from minga._version import __version__ as __version__

if TYPE_CHECKING:
    from minga.codecs import Codec
    from minga.comm import Transport, all_reduce_mean, all_reduce_sum, broadcast
    from minga.data.prepared.dataset import PreparedDataset
    from minga.engines.local import run
    from minga.engines.scripts import Launched, launch
    from minga.metrics import Metric
    from minga.model.clipping import clipped
    from minga.model.layout import Bucket
    from minga.model.replica import Replica
    from minga.report.inline import show
    from minga.report.live import live_view
    from minga.report.summary import Summary
    from minga.runs.experiment import Cluster, Experiment, Training
    from minga.runs.workload import FurtherTest, Workload
    from minga.strategies import Strategy
    from minga.study import Study, load_study, run_study
    from minga.training.own_loop import OwnLoop, join

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

# Where each name lives. They are imported when they are used: `minga --help` should not wait for torch, and
# `minga doctor` must be able to say that torch is missing.
_HOMES = {
    "Bucket": "minga.model.layout",
    "Cluster": "minga.runs.experiment",
    "Codec": "minga.codecs",
    "Experiment": "minga.runs.experiment",
    "FurtherTest": "minga.runs.workload",
    "Launched": "minga.engines.scripts",
    "Metric": "minga.metrics",
    "OwnLoop": "minga.training.own_loop",
    "PreparedDataset": "minga.data.prepared.dataset",
    "Replica": "minga.model.replica",
    "Strategy": "minga.strategies",
    "Study": "minga.study",
    "Summary": "minga.report.summary",
    "Training": "minga.runs.experiment",
    "Transport": "minga.comm",
    "Workload": "minga.runs.workload",
    "all_reduce_mean": "minga.comm",
    "all_reduce_sum": "minga.comm",
    "broadcast": "minga.comm",
    "clipped": "minga.model.clipping",
    "join": "minga.training.own_loop",
    "launch": "minga.engines.scripts",
    "live_view": "minga.report.live",
    "load_study": "minga.study",
    "run": "minga.engines.local",
    "run_study": "minga.study",
    "show": "minga.report.inline",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'minga' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
