"""All faults, in the order of the table."""

from __future__ import annotations

import dataclasses

from drills import unacknowledged
from drills.comings import churn, join
from drills.fault import Fault
from drills.job import STEPS_A_SECOND, Setting
from drills.networks import cut, slow_down
from drills.processes import (
    kill_coordinator,
    kill_everything_and_go_on,
    kill_rank,
    kill_server,
    kill_unacknowledged,
    out_of_memory,
    stop_and_go_on,
    stop_for_a_while,
)
from drills.promises import Promise, after_silence
from minga.errors import MingaError
from minga.runs.experiment import Cluster, Experiment

__all__ = ["TORCHRUN", "catalogue", "short_catalogue"]

_NODES = 4
_PERIOD = 8
_CHECKPOINT_EVERY = 50
_LISTEN = ("--listen", "127.0.0.1", "--expect")
TORCHRUN = "torchrun"


def _steps(seconds: float) -> int:
    """Enough for a run that lasts that long."""
    return int(STEPS_A_SECOND * seconds)


def short_catalogue() -> list[Fault]:
    """A few faults, done to runs that are as short as they can be."""
    steps = {"kill-rank-0": _steps(6), "join": _steps(14)}
    return [
        dataclasses.replace(
            fault,
            setting=dataclasses.replace(fault.setting, steps=steps[fault.name]),
            trials=1,
            compared=False,  # that takes another run; and so short ones have not learnt enough to be compared
        )
        for fault in catalogue()
        if fault.name in steps
    ]


def catalogue() -> list[Fault]:
    """Every fault with its setting and what is promised."""
    timeout = Setting().heartbeat_timeout_seconds
    plain = Setting(heartbeat_timeout_seconds=timeout)
    local = Setting(strategy=f"local_sgd:period={_PERIOD}", steps=_steps(60), heartbeat_timeout_seconds=timeout)
    kept = Setting(options=("--checkpoint-every", f"{_CHECKPOINT_EVERY}steps"))
    lab = {"bandwidth": "100mbit", "heartbeat_timeout_seconds": timeout}
    faults = [
        Fault(
            name=f"kill-rank-{rank}",
            words=f"kill -9 of rank {rank}",
            harm=kill_rank(rank),
            setting=plain,
            promise=Promise(at_the_end=_NODES - 1),
            trials=3 if rank == 0 else 2,
        )
        for rank in range(_NODES)
    ]
    faults += [
        Fault(
            name="kill-coordinator",
            words="kill -9 of the coordinator, then of a rank",
            harm=kill_coordinator,
            setting=plain,
            promise=Promise(at_the_end=_NODES - 1),
        ),
        Fault(
            name="kill-everything",
            words="kill -9 of everything, then --resume",
            harm=kill_everything_and_go_on,
            setting=kept,
            # Nobody is left to go on: what is promised is the last checkpoint.
            promise=Promise(recovery_seconds=30, lost_steps=_CHECKPOINT_EVERY + 10, at_the_end=_NODES),
        ),
        Fault(
            name="sigterm",
            words="SIGTERM, then --resume",
            harm=stop_and_go_on,
            setting=kept,
            promise=Promise(recovery_seconds=30, lost_steps=0, at_the_end=_NODES),
        ),
        Fault(
            name="stop-ring",
            words="SIGSTOP for 30 s, ring",
            harm=stop_for_a_while(2, 30),
            setting=Setting(steps=_steps(60), heartbeat_timeout_seconds=timeout),
            promise=after_silence(timeout, at_the_end=_NODES),
            deadline_seconds=180,
        ),
        Fault(
            name="stop-local-sgd",
            words="SIGSTOP for 30 s, local_sgd",
            harm=stop_for_a_while(2, 30),
            setting=local,
            promise=after_silence(timeout, lost_steps=_PERIOD, at_the_end=_NODES),
            deadline_seconds=180,
        ),
        Fault(
            name="stop-for-good",
            words="SIGSTOP until the end, ring",
            harm=stop_for_a_while(2, None),
            setting=plain,
            promise=after_silence(timeout, at_the_end=_NODES - 1),
        ),
        Fault(
            name="out-of-memory",
            words="out of memory (control group)",
            harm=out_of_memory(1),
            setting=plain,
            promise=Promise(at_the_end=_NODES - 1),
        ),
    ]
    for loud, word in ((True, "loud"), (False, "silent")):
        faults += [
            Fault(
                name=f"{word}-cut-{seconds}",
                words=f"{word} cut of a link for {seconds} s",
                harm=cut(["h3"], seconds, loud=loud),
                setting=Setting(steps=_steps(seconds + 30), **lab),  # type: ignore[arg-type]
                promise=after_silence(timeout, at_the_end=_NODES),
                deadline_seconds=seconds + 150,
                needs_lab=True,
            )
            for seconds in (5, 60)
        ]
    return [
        *faults,
        Fault(
            name="silent-cut-for-good",
            words="silent cut of a link until the end",
            harm=cut(["h3"], None),
            setting=Setting(steps=_steps(30), **lab),  # type: ignore[arg-type]
            promise=after_silence(timeout, at_the_end=_NODES - 1),
            needs_lab=True,
        ),
        Fault(
            name="split",
            words="split of the network, 2|2, for 30 s",
            harm=cut(["h3", "h4"], 30),
            setting=Setting(steps=_steps(60), **lab),  # type: ignore[arg-type]
            promise=after_silence(timeout, at_the_end=_NODES),
            deadline_seconds=180,
            needs_lab=True,
        ),
        Fault(
            name="slow-network",
            words="bandwidth falls from 100 to 1 Mbit/s",
            harm=slow_down("1mbit", after_step=_steps(15)),
            setting=Setting(steps=_steps(15) + 30, **lab),  # type: ignore[arg-type]
            promise=Promise(recovery_seconds=timeout + 2, lost_steps=0, at_the_end=_NODES),
            deadline_seconds=240,
            needs_lab=True,
        ),
        Fault(
            name="join",
            words="a node joins",
            harm=join,
            setting=Setting(nodes=3, steps=_steps(30), options=(*_LISTEN, "3")),
            promise=Promise(at_the_end=4),
        ),
        Fault(
            name="churn",
            words="20 % of nodes die and come in a minute, for 5 minutes",
            harm=churn(5, 60),
            setting=Setting(nodes=5, steps=_steps(400), options=(*_LISTEN, "5")),
            promise=Promise(ideal=0.9, at_the_end=5),
            deadline_seconds=700,
        ),
        *_with_servers(timeout),
    ]


def _with_servers(timeout: float) -> list[Fault]:
    """Parameter servers: in step, and not; a server that is killed is started again by the launcher."""
    nodes, servers = 3, 2
    modes = {mode: f"ps:mode={mode},servers={servers}" for mode in ("sync", "ssp", "async")}
    found = []
    for name, words, mode, harm, at_the_end in (
        ("kill-server", "kill -9 of a parameter server (sync)", "sync", kill_server(nodes), nodes),
        ("kill-server-async", "kill -9 of a parameter server (async)", "async", kill_server(nodes), nodes),
        (
            "kill-worker-of-servers",
            "kill -9 of a worker of parameter servers (async)",
            "async",
            kill_rank(1),
            nodes - 1,
        ),
        (
            "kill-unacknowledged",
            "kill -9 of a worker whose update was sent and not acknowledged (async)",
            "async",
            kill_unacknowledged(1),
            nodes - 1,
        ),
    ):
        setting = Setting(
            file=str(unacknowledged.__file__), strategy=modes[mode], nodes=nodes, heartbeat_timeout_seconds=timeout
        )
        promise = Promise(
            identical=mode == "sync",
            lost_steps=1.0 if mode == "sync" else None,
            at_the_end=at_the_end + servers,
        )
        found.append(Fault(name=name, words=words, harm=harm, setting=setting, promise=promise))
    setting = Setting(strategy=modes["ssp"], nodes=nodes, steps=_steps(60), heartbeat_timeout_seconds=timeout)
    found.append(
        Fault(
            name="stop-ssp",
            words="SIGSTOP for 30 s, parameter servers (ssp)",
            harm=stop_for_a_while(1, 30),
            setting=setting,
            promise=after_silence(timeout, identical=False, lost_steps=None, at_the_end=nodes + servers),
            deadline_seconds=180,
        )
    )
    missing = "" if _elastic(modes["sync"]) and unacknowledged.POSSIBLE else "not supported yet"
    return [dataclasses.replace(fault, unsupported=missing) for fault in found]


def _elastic(strategy: str) -> bool:
    try:
        return Experiment(
            workload="digits",
            strategy=strategy,  # type: ignore[arg-type]
            cluster=Cluster(nodes=3, transport="tcp"),
        ).elastic
    except MingaError:
        return False
