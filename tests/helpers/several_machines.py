"""Runs with several "machines": addresses of this one's loopback, where 127.0.0.2 is not 127.0.0.1."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from minga import Cluster, Experiment, Summary, Training, run
from minga.engines.joining import Invitation, join_run
from minga.engines.local import go_on
from minga.launch.listening import Listening
from minga.measure.event_reader import event_files, read_events
from minga.runs.experiment import Checkpoints

WORKLOAD = """
import time
from functools import partial
import torch
from torch import nn
from minga.testing.problems import blobs, sgd_with_momentum
import dataclasses

SLOW_SECONDS = {slow}

def loss(outputs, targets):
    time.sleep(SLOW_SECONDS)
    return nn.functional.cross_entropy(outputs, targets)

workload = dataclasses.replace(blobs(optimizer=sgd_with_momentum), loss=loss)
"""


def write_workload(folder: Path, slow: float = 0.02) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "slow_blobs.py"
    file.write_text(WORKLOAD.format(slow=slow))
    return file


class Part(threading.Thread):
    """Something that trains, in a thread of this process."""

    def __init__(self, work: Callable[[], Summary | None]) -> None:
        super().__init__()
        self._work = work
        self.summary: Summary | None = None
        self.error: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            self.summary = self._work()
        except BaseException as error:
            self.error = error

    def end(self, seconds: float = 60.0) -> Summary:
        self.join(seconds)
        assert not self.is_alive(), "it hangs"
        if self.error is not None:
            raise self.error
        assert self.summary is not None
        return self.summary


class Host(Part):
    """Where a run is started, at an address of its own."""

    def __init__(
        self,
        folder: Path,
        *,
        expect: int = 2,
        steps: int = 80,
        strategy: str = "ring",
        here: int = 1,
        address: str = "127.0.0.2",
        tls: str | None = None,
        resume: Path | None = None,
        start_from: Path | None = None,
        **cluster: Any,
    ) -> None:
        self.where: tuple[str, int] | None = None
        self.runs = folder / "runs"
        self._listens = threading.Event()
        self.listening = Listening(address, here=here, tls=tls, when_listening=self._listening_at)
        experiment = Experiment(
            workload=f"{write_workload(folder)}:workload",
            strategy=strategy,  # type: ignore[arg-type]
            cluster=Cluster(nodes=expect, **{"timeout_seconds": 30, "heartbeat_timeout_seconds": 2, **cluster}),
            training=Training(
                steps=steps,
                total_batch=12,
                evaluate_every=0,
                start_from=None if start_from is None else str(start_from),
            ),
            checkpoints=Checkpoints(every_steps=20, every_seconds=0),
            runs=str(self.runs),
        )
        if resume is not None:
            super().__init__(lambda: go_on(resume, experiment, listening=self.listening))
        else:
            super().__init__(lambda: run(experiment, listening=self.listening))

    def _listening_at(self, address: str, port: int) -> None:
        self.where = (address, port)
        self._listens.set()

    @property
    def address(self) -> tuple[str, int]:
        assert self._listens.wait(30), self.error
        assert self.where is not None
        return self.where

    def invitation(self, runs: Path, **more: Any) -> Invitation:
        address, port = self.address
        defaults = {"address": address, "port": port, "token": self.listening.token, "runs": str(runs)}
        return Invitation(**{**defaults, **more})

    def joined_by(self, runs: Path, **more: Any) -> Part:
        invitation = self.invitation(runs, **more)
        return Part(lambda: join_run(invitation))

    def command(self, runs: Path, *words: str) -> subprocess.Popen[bytes]:
        """`minga join` as people type it, in a process of its own."""
        address, port = self.address
        return subprocess.Popen(
            [sys.executable, "-m", "minga", "join", f"{address}:{port}", "--runs", str(runs), *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            env={**os.environ, "MINGA_TOKEN": self.listening.token},
        )


def events(runs: Path, kind: str) -> list[dict[str, Any]]:
    """Of all ranks below a directory with runs."""
    folders = sorted(runs.iterdir()) if runs.exists() else []
    found = [event for folder in folders for path in event_files(folder) for event in read_events(path)]
    return [vars(event) for event in found if event.event == kind]


def until(what: Callable[[], Any], seconds: float = 40.0) -> Any:
    deadline = time.monotonic() + seconds
    while not (found := what()):
        assert time.monotonic() < deadline, "it did not come to that"
        time.sleep(0.02)
    return found


def step_of(runs: Path) -> int:
    return max((event["step"] for event in events(runs, "step")), default=0)


def digests(*runs: Path) -> set[str]:
    return {event["digest"] for each in runs for event in events(each, "finished")}


def listening_addresses(of: psutil.Process) -> dict[str, str]:
    """By address and port: the names of this process and those below it that listen there, from /proc."""
    owners: dict[str, str] = {}
    for process in [of, *of.children(recursive=True)]:
        try:
            links = [str(path.readlink()) for path in Path(f"/proc/{process.pid}/fd").iterdir()]
        except OSError:
            continue
        owners.update({link[8:-1]: process.name() for link in links if link.startswith("socket:[")})
    found = {}
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == "0A" and words[9] in owners:  # LISTEN
                found[_address(words[1])] = owners[words[9]]
    return found


def _address(hexadecimal: str) -> str:
    host, port = hexadecimal.split(":")
    if len(host) == 8:
        return ".".join(str(byte) for byte in reversed(bytes.fromhex(host))) + f":{int(port, 16)}"
    return f"{host}:{int(port, 16)}"


def last_json(text: bytes) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(text.decode().strip().splitlines()[-1])
    return found
