"""A member that reaches the coordinator, but not the others: a firewall, or the wrong interface."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from helpers.several_machines import Host, digests, events, step_of, until
from minga.comm.tcp import DataListener
from minga.errors import PeerTimeout, Refused
from minga.membership.member import Member
from minga.membership.protocol import CoordinatorAddress
from minga.net.generation import MemberInfo, new_incarnation

pytestmark = pytest.mark.chaos


@pytest.mark.slow
def test_who_never_connects_is_out_within_seconds_and_let_in_again_ever_later(tmp_path: Path) -> None:
    host = Host(tmp_path / "first", expect=2, here=2, steps=250, heartbeat_timeout_seconds=5)
    run = until(lambda: next(iter(host.runs.glob("*")), None))
    until(lambda: step_of(host.runs) > 5)
    facts = json.loads((run / "coordinator.json").read_text())["roster"]["facts"]

    def come() -> Member:
        info = MemberInfo(id="behind-a-wall", incarnation=new_incarnation(), address="127.0.0.1", port=listener.port)
        address, port = host.address
        where = CoordinatorAddress(address=address, port=port, token=host.listening.token, run=run.name)
        return Member(where, info, facts)

    with DataListener("127.0.0.1") as listener:  # it is there, but nothing is ever sent or answered
        member = come()
        generation = member.join(30)
        with pytest.raises(Refused, match=r"behind-a-wall makes no progress.*no connection within 5 s"):
            member.wait_for_generation(generation.number, 20)
        member.close()
        before = step_of(host.runs)
        until(lambda: step_of(host.runs) > before + 5)
        member = come()
        with pytest.raises(PeerTimeout):
            member.join(3.5)
        assert "look for a firewall or a wrong interface between them" in member.message
        member.close()
    assert host.end().steps == 250
    assert [event["ranks"] for event in events(host.runs, "recovered")].count(3) == 0  # nobody trained with it
    assert len(digests(host.runs)) == 1
