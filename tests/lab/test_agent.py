"""Agents: processes in namespaces that do what the daemon asks for."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from minga.lab.agent import Agent, AgentError, start_agent
from minga.lab.limits import check_rights
from minga.lab.namespaces import NETWORK, USER, unshare


@pytest.fixture
def agent(labs_possible: None) -> Iterator[Agent]:
    if check_rights():
        pytest.skip("as an ordinary user, only a daemon in a user namespace can have agents")
    started = start_agent("somebody")
    yield started
    started.end()


def test_answers_belong_to_the_last_order(agent: Agent) -> None:
    agent.order("shape", name="nothing", bits_per_second=1e6)  # an order that fails, and whose answer nobody takes
    agent.order("has_netem")
    assert agent.answer() in (True, False)
    assert agent.ask("has_netem") in (True, False)


def test_what_it_can_not_do_is_told(agent: Agent) -> None:
    with pytest.raises(AgentError, match=r"somebody: .*nothing"):
        agent.ask("shape", name="nothing", bits_per_second=1e6)
    with pytest.raises(AgentError, match="can't dance"):
        agent.ask("dance")


def test_a_killed_one_is_told(agent: Agent) -> None:
    os.kill(agent.pid, signal.SIGKILL)
    with pytest.raises(AgentError, match="somebody is gone"):
        agent.ask("has_netem")
    with pytest.raises(AgentError, match="somebody is gone"):
        agent.ask("has_netem")


def test_it_has_no_descriptor_but_its_own(agent: Agent) -> None:
    other = start_agent("another")
    try:
        assert len(os.listdir(f"/proc/{other.pid}/fd")) <= 4  # noqa: PTH208  (input, output, errors, its channel)
    finally:
        other.end()


def test_a_namespace_that_can_not_be_left_is_told() -> None:
    with pytest.raises(OSError, match="unshare"):
        unshare(NETWORK | USER | 1)
