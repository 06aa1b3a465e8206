"""A user's own script on several processes (`minga launch script.py`), or a function, such as one of a notebook's cell.

    def train(epochs):
        run = minga.join()
        ...
        return {"loss": loss}

    done = minga.launch(train, nodes=2, strategy="ring", arguments={"epochs": 3})
    done.results[0], done.summary

The function travels as source (`engines/sources.py` says why), its results come back as JSON.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from minga.base.spec import describe
from minga.engines.sources import script_of
from minga.errors import ConfigError, UsageError
from minga.launch.orders import ScriptOrder
from minga.launch.placement import placed
from minga.launch.processes import Job
from minga.launch.supervisor import Supervisor
from minga.measure.counters import machine_power
from minga.report.live import View, live_view
from minga.report.summary import Summary, summarise
from minga.runs.directory import alone_in, log_file, make_run_directory
from minga.runs.experiment import Cluster, Experiment
from minga.strategies import Strategy

__all__ = ["Launched", "call", "launch", "run_script"]

_RESULTS = "results"


def run_script(experiment: Experiment, script: Path, arguments: Sequence[str], *, show: bool) -> Summary | None:
    """Run the script on every rank; what came out, or None if it never joined. `show`: print rank 0's output."""
    if not script.is_file():
        raise ConfigError(f"there is no script {str(script)!r}; give a Python file that calls minga.join()")
    _check(experiment, "script")
    run = make_run_directory(experiment)
    _run_script(experiment, run, script, arguments, show=show)
    return summarise(run)


def _check(experiment: Experiment, what: str) -> None:
    """`ConfigError` where the strategy needs more than a process for each rank. `what`: a script or a function."""
    if experiment.chosen_strategy.traits.servers_beside_workers:
        raise ConfigError(f"a {what} is a process for each rank: use placement=own for its servers")


@dataclass(frozen=True)
class Launched:
    """What came of a function on several processes."""

    results: list[Any]
    """What it returned on each rank; None for those that served parameters."""
    run: Path
    """The directory with the script that ran, events and logs."""
    summary: Summary | None
    """What training came to, if the function called `minga.join()` and `run.prepare()`."""


def launch(
    function: Callable[..., Any],
    *,
    nodes: int = 2,
    strategy: str | Strategy | None = None,
    arguments: Mapping[str, Any] | None = None,
    runs: str | Path = "runs",
    view: View | None = None,
) -> Launched:
    """Run a function on `nodes` processes of this machine, each of which may call `minga.join()`.

    `arguments` and what the function returns are plain values. `view`: what is seen meanwhile (`View()`: nothing).
    What rank 0 prints is printed here; what the others print is in the logs of the run.
    """
    text = script_of(function, arguments or {})
    experiment = Experiment(
        workload=f"{function.__name__}.py",
        strategy=None if strategy is None else Strategy.from_value(strategy),
        cluster=Cluster(nodes=nodes),
        runs=str(runs),
    )
    _check(experiment, "function")
    run = make_run_directory(experiment)
    script = run / f"{function.__name__}.py"
    script.write_text(text, encoding="utf-8")
    (run / _RESULTS).mkdir()
    log = log_file(run, 0)
    log.touch()
    with alone_in(run), view if view is not None else live_view() as shown, log.open("rb") as printed:
        shown.begin(run, f"{function.__name__}, {nodes} nodes, {describe(experiment.chosen_strategy)}")
        rest = b""

        def tick() -> None:
            """What rank 0 prints, passed on to where this process prints: in a notebook, that is no file descriptor."""
            nonlocal rest
            shown.tick()
            whole, end, rest = (rest + printed.read()).rpartition(b"\n")
            _print(whole + end)

        try:
            _run_script(experiment, run, script, tick=tick)
        finally:
            tick()
            _print(rest + b"\n" if rest else b"")  # a last line may have no end of its own
    results = [_result(run, rank) for rank in range(experiment.ranks)]
    return Launched(results, run, summarise(run))


def _run_script(
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
                function="minga.launch.rank:run_script",
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


def call(function: Callable[..., Any], arguments: Mapping[str, Any]) -> None:
    """In a process of the run: call the function, and keep what it returns."""
    returned = function(**arguments)
    try:
        text = json.dumps(returned, default=_as_number)
    except (TypeError, ValueError) as error:
        raise UsageError(
            f"{function.__name__} returned a {type(returned).__name__}, which can't be sent back ({error}); return "
            "numbers, strings, lists and dicts, and save the rest to files"
        ) from None
    file = Path(os.environ["MINGA_RUN"]) / _RESULTS / f"rank-{os.environ['RANK']}.json"
    file.write_text(text, encoding="utf-8")


def _as_number(value: Any) -> Any:
    """A single number of numpy's or torch's, as means and losses are."""
    if getattr(value, "ndim", None) == 0 and hasattr(value, "item"):
        return value.item()
    raise TypeError(f"a {type(value).__name__} is not a number, string, list or dict")


def _result(run: Path, rank: int) -> Any:
    file = run / _RESULTS / f"rank-{rank}.json"
    return json.loads(file.read_text(encoding="utf-8")) if file.is_file() else None


def _print(text: bytes) -> None:
    if text:
        sys.stdout.write(text.decode(errors="replace"))
        sys.stdout.flush()
