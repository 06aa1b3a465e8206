"""A user's own script as the processes of a run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from minga.base.spec import describe
from minga.errors import ConfigError
from minga.launch.local import see_through
from minga.launch.placement import hosting
from minga.launch.processes import Job, processes
from minga.measure.power import machine_power
from minga.report.summary import Summary, summarise
from minga.runs.directory import log_file, make_run_directory
from minga.runs.experiment import Experiment

__all__ = ["launch_script", "run_script"]


def run_script(experiment: Experiment, script: Path, arguments: Sequence[str], *, show: bool) -> Summary | None:
    """Run the script on every rank; what came out, or None if it never joined. `show`: print rank 0's output."""
    if not script.is_file():
        raise ConfigError(f"there is no script {str(script)!r}; give a Python file that calls minga.join()")
    if experiment.chosen_strategy.traits.servers_beside_workers:
        raise ConfigError("a script is a process for each rank: use placement=own for its servers")
    run = make_run_directory(experiment)
    launch_script(experiment, run, script, arguments, show=show)
    return summarise(run)


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
    with power, hosting(experiment, run, elastic=False) as where:
        assert where.meeting is not None
        jobs = [
            Job(
                name=f"rank {rank}",
                function="minga.launch.script:main",
                arguments={
                    "run": str(run),
                    "rank": rank,
                    "script": str(script.resolve()),
                    "arguments": list(arguments),
                    "threads": experiment.cluster.threads,
                },
                log=str(log_file(run, rank)),
                place=where.places[rank],
                show=show and rank == 0,
                environment={
                    "RANK": str(rank),
                    "WORLD_SIZE": str(experiment.ranks),
                    "LOCAL_RANK": str(rank),
                    "MASTER_ADDR": where.meeting[0],
                    "MASTER_PORT": str(where.meeting[1]),
                    "MINGA_RUN": str(run),
                    **({"MINGA_HOST": where.hosts[rank]} if experiment.in_lab else {}),
                    **({"MINGA_STRATEGY": describe(experiment.strategy)} if experiment.strategy else {}),
                    "MINGA_TIMEOUT_SECONDS": str(experiment.cluster.timeout_seconds),
                },
            )
            for rank in range(experiment.ranks)
        ]
        with processes([*where.helpers, *jobs], run / "logs" / "fork-server.log") as started:
            see_through(started, run, tick)
