"""What can be known before a run begins, so that a mistake is told at once and leaves no run directory.

    check(experiment)                # `UsageError` with the value, the choices and the remedy

It runs where the command does, without torch: users' files are read and parsed here, and imported by the ranks alone.
"""

from __future__ import annotations

import resource
from fnmatch import fnmatch
from pathlib import Path

import psutil  # type: ignore[import-untyped]

from minga.base.lazy import torch
from minga.base.user_files import check_names
from minga.data.directory import data_directory, dataset_directory
from minga.data.sources import known_datasets
from minga.errors import ConfigError, unknown
from minga.lab.limits import check_network
from minga.net.sockets import listen
from minga.runs.experiment import Experiment
from minga.runs.network import Network
from minga.workloads import WORKLOADS

__all__ = ["check"]

# What a rank of the smallest model takes beside what it shares with the others, and what the launcher keeps open.
_BYTES_OF_A_RANK = 60 << 20
_FILES_OF_A_LAUNCHER = 64
_FILES_FOR_A_PEER = 2


def check(experiment: Experiment, *, here: int | None = None) -> None:
    """`UsageError` for what can't be trained here; `here`: how many of the ranks are on this machine (None: all)."""
    _check_workload(experiment)
    if experiment.in_lab:
        check_network(experiment.cluster.network or Network(), experiment.hosts)
    elif experiment.cluster.port and experiment.ranks > 1 and here is None:
        listen("127.0.0.1", experiment.cluster.port).close()
    if experiment.cluster.device == "cuda" and not torch.cuda.is_available():
        raise ConfigError("cluster.device is cuda, but torch finds no GPU here (minga doctor tells more); use cpu")
    _check_memory(experiment.ranks if here is None else here)
    _check_open_files(experiment.ranks)


def _check_workload(experiment: Experiment) -> None:
    if ".py" in experiment.workload:
        name = experiment.workload if ":" in experiment.workload else f"{experiment.workload}:workload"
        check_names(name)
    elif experiment.workload not in WORKLOADS:
        raise unknown("workload", experiment.workload, WORKLOADS, "A workload of your own: file.py:name.")
    where = data_directory(Path(experiment.data) if experiment.data is not None else None)
    for known in known_datasets().values():
        if any(fnmatch(experiment.workload, pattern) for pattern in known.workloads):
            if not (where / known.folder).is_dir() and (experiment.data is None or not where.is_dir()):
                # An error that says how to get it; what else may lie there is for the workload to say.
                needs = [file.name for file in known.files if not file.optional]
                dataset_directory(known.folder, Path(experiment.data) if experiment.data else None, needs=needs)
            return
    if experiment.data is not None and not where.is_dir():
        raise ConfigError(f"the data directory {where} does not exist; give another with --data DIR, or leave it out")


def _check_memory(here: int) -> None:
    available, needed = psutil.virtual_memory().available, here * _BYTES_OF_A_RANK
    if needed > available:
        raise ConfigError(
            f"{here:,} processes need at least {needed / 1e9:,.0f} GB of memory, and {available / 1e9:,.0f} GB are "
            f"free, enough for {available // _BYTES_OF_A_RANK:,} of them; minga simulate tells what more nodes would do"
        )


def _check_open_files(ranks: int) -> None:
    """Each process has connections with all others. What this user may have is raised as far as it goes."""
    needed = _FILES_OF_A_LAUNCHER + _FILES_FOR_A_PEER * ranks
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return
    if hard != resource.RLIM_INFINITY and hard < needed:
        raise ConfigError(
            f"{ranks:,} ranks need {needed:,} open files in a process, and {hard:,} are allowed here; "
            f"raise that first: ulimit -n {needed}"
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
