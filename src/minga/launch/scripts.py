"""A user's own script as the processes of a run: how they are started, and what each of them does.

launch_script(experiment, run, Path("train.py"), ["--epochs", "5"])
"""

from __future__ import annotations

import atexit
import runpy
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from minga.base.config import build
from minga.base.spec import describe
from minga.launch.orders import ScriptOrder
from minga.launch.placement import placed
from minga.launch.processes import Job
from minga.launch.rank import record_failure
from minga.launch.supervisor import Supervisor
from minga.measure.power import machine_power
from minga.measure.recorder import Recorder
from minga.runs.directory import event_file, log_file
from minga.runs.experiment import Experiment

__all__ = ["launch_script", "main"]


def launch_script(
    experiment: Experiment,
    run: Path,
    script: Path,
    arguments: Sequence[str] = (),
    *,
    show: bool = False,
    tick: Callable[[], None] = lambda: None,
) -> None:
    """The script as the ranks of a run that has its directory already; `tick` is called a few times a second."""
    interval, gpus = experiment.measuring.interval_seconds, experiment.cluster.device == "cuda"
    power = machine_power(run, interval_seconds=interval, gpus=gpus)
    with power, placed(experiment, run, elastic=False) as placement:
        assert placement.meeting is not None
        ranks = [
            Job(
                name=f"rank {rank}",
                function="minga.launch.scripts:main",
                order=ScriptOrder(
                    run=run,
                    rank=rank,
                    script=script.resolve(),
                    arguments=tuple(arguments),
                    threads=experiment.cluster.threads,
                ),
                log=str(log_file(run, rank)),
                place=placement.places[rank],
                show=show and rank == 0,
                environment={
                    "RANK": str(rank),
                    "WORLD_SIZE": str(experiment.ranks),
                    "LOCAL_RANK": str(rank),
                    "MASTER_ADDR": placement.meeting.address,
                    "MASTER_PORT": str(placement.meeting.port),
                    "MINGA_RUN": str(run),
                    **({"MINGA_HOST": placement.hosts[rank]} if experiment.in_lab else {}),
                    **({"MINGA_STRATEGY": describe(experiment.strategy)} if experiment.strategy else {}),
                    "MINGA_TIMEOUT_SECONDS": str(experiment.cluster.timeout_seconds),
                },
            )
            for rank in range(experiment.ranks)
        ]
        Supervisor(run, [*placement.helpers, *ranks]).supervise(tick)


def main(arguments: Mapping[str, Any]) -> int:
    """In a process of the run: run the script as Python would; the exit code."""
    order = build(ScriptOrder, arguments)
    torch.set_num_threads(order.threads)
    sys.argv = [str(order.script), *order.arguments]
    sys.path.insert(0, str(order.script.parent))
    try:
        runpy.run_path(str(order.script), run_name="__main__")
    except SystemExit:
        raise
    except BaseException as error:
        recorder = Recorder(event_file(order.run, order.rank))
        record_failure(recorder, order.rank, 0, error)
        recorder.close()
        return 1
    finally:
        atexit._run_exitfuncs()  # the process leaves by os._exit, which would pass them over
    return 0
