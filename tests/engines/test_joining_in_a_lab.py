"""Hosts with a network of their own join a run, with the command that was printed and nothing else."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import re
import shlex
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers.several_machines import digests, last_json, until
from minga.lab import Lab
from minga.runs.network import Network

pytestmark = [pytest.mark.chaos, pytest.mark.usefixtures("labs_possible")]


class Command:
    """`minga ...` on a host of a lab, in a directory of its own."""

    def __init__(self, lab: Lab, host: str, folder: Path, *words: str) -> None:
        folder.mkdir(exist_ok=True)
        self.began = time.monotonic()
        environment = {name: value for name, value in os.environ.items() if name != "MINGA_TOKEN"}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "minga", *words],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=lab.entering(host),
        )
        self.lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        self.errors: list[str] = []
        self._reading = threading.Thread(target=self._read)
        self._reading.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.errors.append(line)

    def said(self, pattern: str) -> str:
        """The first part of a line that fits, as soon as there is one."""

        def find() -> str | None:
            assert self.process.poll() is None or re.search(pattern, "".join(self.errors)), "".join(self.errors)
            found = re.search(pattern, "".join(self.errors))
            return found[1] if found else None

        return str(until(find))

    def end(self, seconds: float = 60.0) -> tuple[int, str, str]:
        """Exit code, output, errors."""
        assert self.process.stdout is not None
        output = self.process.stdout.read()
        code = self.process.wait(seconds)
        self._reading.join()
        return code, output, "".join(self.errors)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self._reading.join()
        for stream in (self.process.stdout, self.process.stderr):
            assert stream is not None
            stream.close()


@pytest.fixture(scope="module")
def lab(labs_possible: None) -> Iterator[Lab]:
    with Lab(Network(bandwidth="100mbit"), hosts=3) as lab:  # type: ignore[arg-type]
        yield lab


@pytest.mark.slow
def test_the_printed_command_is_all_that_another_host_needs(lab: Lab, tmp_path: Path) -> None:
    address = lab.hosts["h1"]["address"]
    with contextlib.ExitStack() as stack:

        def start(host: str, *words: str) -> Command:
            command = Command(lab, host, tmp_path / host, *words)
            stack.callback(command.close)
            return command

        first = start(
            "h1", "train", "digits", "--listen", address, "--expect", "2", "--min-nodes", "2", "--steps", "60", "--json"
        )
        printed = shlex.split(first.said(r"(minga join .*)\n"))
        assert printed[:2] == ["minga", "join"]
        assert first.said(r"waiting: (1 .*)\n")  # a person is told what it waits for
        lost = start("h3", *printed[1:], "--interface", "lo")
        code, _, words = lost.end()
        assert code in (1, 2)
        assert "can't leave from 127.0.0.1" in words and "--interface" in words
        assert time.monotonic() - lost.began < 15  # most of that is starting Python on a busy machine
        second = start("h2", *printed[1:], "--json")
        code, output, words = first.end()
        assert code == 0, words
        summary = last_json(output.encode())
        assert [rank["rank"] for rank in summary["ranks"]] == [0, 1]  # also the one on the other host
        assert all(rank["steps"] == 60 for rank in summary["ranks"])
        code, output, words = second.end()
        assert code == 0, words
        theirs = last_json(output.encode())
    runs = tmp_path / "h1" / "runs", tmp_path / "h2" / "runs"
    assert len(digests(*runs)) == 1
    here, there = (next(each.iterdir()) for each in runs)
    assert Path(theirs["run"]).resolve() == there.resolve()
    assert (here / "events" / "rank-1.jsonl").read_text() == (there / "events" / "rank-1.jsonl").read_text()
    assert json.loads((here / "coordinator.json").read_text())["address"] == address
