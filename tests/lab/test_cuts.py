"""Hosts that are cut off, with and without a word, and joined again."""

from __future__ import annotations

import subprocess
import sys

import pytest

from minga.errors import ConfigError
from minga.lab import Lab, registry
from minga.lab.laboratory import cut_hosts, mend_hosts
from minga.runs.network import Network

pytestmark = pytest.mark.usefixtures("no_lab_left")

# Over connections that are made before: what a cut does to these is the question.
ECHO = """
import socket, sys
listener = socket.create_server((sys.argv[1], 7007)); print("ready", flush=True)
while True:
    connection, _ = listener.accept()
    connection.sendall(b"here"); connection.close()
"""
CALL = """
import socket, sys
try:
    with socket.create_connection((sys.argv[1], 7007), timeout=1.0) as connection:
        print(connection.recv(4).decode())
except TimeoutError:
    print("silence")
except OSError as error:
    print(error.strerror)
"""


class Answering:
    """A process on each host that answers, and calls between them."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        self._processes = []
        for host, place in lab.hosts.items():
            words = [sys.executable, "-c", ECHO, place["address"]]
            process = subprocess.Popen(words, stdout=subprocess.PIPE, preexec_fn=lab.entering(host))
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
            self._processes.append(process)

    def close(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait()
            assert process.stdout is not None
            process.stdout.close()

    def call(self, start: str, end: str) -> str:
        words = [sys.executable, "-c", CALL, self._lab.hosts[end]["address"]]
        done = subprocess.run(words, stdout=subprocess.PIPE, preexec_fn=self._lab.entering(start), check=True)
        return done.stdout.decode().strip()


def test_a_silent_cut_tells_nobody_and_an_island_keeps_its_own() -> None:
    with Lab(Network(bandwidth=100e6), 4) as lab:
        hosts = Answering(lab)
        try:
            assert hosts.call("h1", "h3") == "here"
            lab.cut("h3", "h4")
            assert hosts.call("h1", "h3") == "silence"
            assert hosts.call("h3", "h1") == "silence"
            assert hosts.call("h3", "h4") == "here"
            assert hosts.call("h1", "h2") == "here"
            record = next(each for each in registry.records() if each.name == lab.name)
            mend_hosts(record, ["h3", "h4"])
            assert hosts.call("h1", "h3") == "here"
            assert hosts.call("h4", "h2") == "here"
        finally:
            hosts.close()


def test_a_loud_cut_is_told_by_the_hosts_own_kernel() -> None:
    with Lab(Network(bandwidth=100e6), 3) as lab:
        hosts = Answering(lab)
        try:
            record = next(each for each in registry.records() if each.name == lab.name)
            cut_hosts(record, ["h2"], loud=True)
            assert hosts.call("h2", "h1") == "Network is unreachable"
            assert hosts.call("h1", "h3") == "here"
            lab.mend("h2")
            assert hosts.call("h2", "h1") == "here"
            assert hosts.call("h3", "h2") == "here"
        finally:
            hosts.close()


def test_mistakes_in_cuts_are_told() -> None:
    with Lab(Network(delay=0.001), 2) as lab:
        with pytest.raises(ConfigError, match="no host 'h9'"):
            lab.cut("h9")
        if lab.emulation == "relay":
            with pytest.raises(ConfigError, match="only its silent cut"):
                lab.cut("h1", loud=True)
        lab.cut("h1")
        lab.mend("h1")
