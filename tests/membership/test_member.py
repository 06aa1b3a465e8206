"""Members and a coordinator over real sockets, in one process."""

from __future__ import annotations

import json
import logging
import stat
import time
from pathlib import Path

import pytest
from people import TOKEN, at, data_port, form_all, info, join_all, make_coordinator, members, quick, until

from minga.errors import ConfigError, PeerTimeout, PortBusy, Refused, RunError
from minga.membership.coordinator import coordinating
from minga.membership.member import Change, Member
from minga.membership.messages import Alive
from minga.membership.state_file import load, wait_for_address
from minga.net.generation import Position

IDS = ["node-0", "node-1", "node-2"]


def test_all_get_the_same_generation_in_the_same_order(tmp_path: Path) -> None:
    with coordinating(make_coordinator(tmp_path, 3)) as where, members(*where, ids=IDS[::-1]) as them:
        generations = join_all(them)
        assert generations[0] == generations[1] == generations[2]
        assert [member.id for member in generations[0].members] == IDS
        assert all(member.connected and not member.lost_contact for member in them)


def test_a_loss_is_announced_to_the_others_within_half_a_second(tmp_path: Path) -> None:
    with coordinating(make_coordinator(tmp_path, 3)) as where, members(*where, ids=IDS) as them:
        changes: list[Change] = []
        join_all(them)
        for rank, member in enumerate(them):
            member.report(step=10 + rank, epoch=1, offset=64)
        them[0].on_change(changes.append)
        time.sleep(0.25)
        begin = time.monotonic()
        them[1].close()
        generation = them[0].wait_for_generation(after=1, timeout_seconds=5)
        assert time.monotonic() - begin < 1.0
        assert [member.id for member in generation.members] == ["node-0", "node-2"]
        assert them[2].wait_for_generation(1, 5) == generation
        (change,) = changes
        assert change.reason == "node-1 is gone: its connection ended"
        assert change.announcement is not None
        assert change.announcement.position == Position(step=12, epoch=1, offset=64)
        assert change.announcement.survivors == ("node-0", "node-2")


def test_joining_leaving_and_finishing(tmp_path: Path) -> None:
    with coordinating(make_coordinator(tmp_path, 2)) as where, members(*where, ids=IDS[:2]) as them:
        join_all(them)
        with members(*where, ids=["node-8", "node-9"]) as late:
            joined = join_all(late)
            assert [member.id for member in joined[0].members] == ["node-0", "node-1", "node-8", "node-9"]
            assert joined[0].number == 2
            them[0].wait_for_generation(1, 5)
            form_all(them)
            late[0].leave()
            assert len(late[1].wait_for_generation(2, 5).members) == 3
            for member in (them[0], them[1], late[1]):
                member.wait_for_generation(2, 5)
                member.formed(3)
            begin = time.monotonic()
            for member in (them[0], them[1], late[1]):
                member.leave(finished=True)
            assert time.monotonic() - begin < 1, "leaving does not wait"
    state = load(tmp_path / "coordinator.json")
    assert state is not None
    assert state.roster.number == 3
    assert state.roster.finished == {"node-0", "node-1", "node-9"}


def test_waiting_has_a_deadline_and_says_what_for(tmp_path: Path) -> None:
    with coordinating(make_coordinator(tmp_path, 3)) as where, members(*where, ids=IDS[:1]) as (member,):
        with pytest.raises(PeerTimeout, match="1 of 3 members are here"):
            member.join(0.3)


def test_below_min_nodes_members_are_interrupted_and_told(tmp_path: Path) -> None:
    rules = quick(2, min_nodes=2)
    with coordinating(make_coordinator(tmp_path, 2, rules=rules)) as where, members(*where, ids=IDS[:2]) as them:
        changes: list[Change] = []
        them[0].on_change(changes.append)
        join_all(them)
        them[1].close()
        until(lambda: len(changes) == 2)
        assert changes[1].announcement is None
        assert "node-1 is gone" in changes[1].reason
        until(lambda: "at least 2 needed (min_nodes)" in them[0].message)
        with members(*where, ids=["node-1"]) as (again,):
            assert again.join(5).number == 2
            assert them[0].wait_for_generation(1, 5).number == 2


def test_a_callback_that_fails_does_not_end_the_member(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with coordinating(make_coordinator(tmp_path, 1)) as where, members(*where, ids=IDS[:1]) as (member,):
        member.on_change(lambda change: 1 / 0)  # type: ignore[arg-type, return-value]
        join_all([member])
        time.sleep(1.0)
        assert member.connected
    assert "a callback for changes of the generation failed" in caplog.text


def test_facts_that_differ_are_refused(tmp_path: Path) -> None:
    coordinator = make_coordinator(tmp_path, 1, facts={"version": "0.1.0", "workload": "aaaa"})
    with coordinating(coordinator) as where, data_port() as port:
        member = Member(at(where), info("x", port=port), facts={"version": "0.2.0", "workload": "aaaa"})
        with pytest.raises(Refused, match=r"this run has 0\.1\.0, x has 0\.2\.0; install the same version of Minga"):
            member.join(5)
        member.close()


def test_a_port_for_data_that_can_not_be_reached_is_refused_with_the_remedy(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with data_port() as port:
        pass  # nobody listens there any more
    with coordinating(make_coordinator(tmp_path, 1)) as where:
        for wrong, words in (
            (info("x", port=port), "Connection refused"),
            (info("x", address="0.0.0.0"), "stands for all"),
        ):
            member = Member(at(where), wrong)
            begin = time.monotonic()
            with pytest.raises(Refused, match=words):
                member.join(10)
            assert time.monotonic() - begin < 3
            member.close()
    assert "can't reach x's port for data" in caplog.text
    assert "--interface NAME" in caplog.text


def test_a_member_loses_contact_before_the_coordinator_gives_it_up(tmp_path: Path) -> None:
    """A member whose clock says that no heartbeat was answered stops writing, whatever the wall clock says."""
    now = [0.0]
    rules = quick(1, heartbeat_seconds=5, heartbeat_timeout_seconds=10)  # no other heartbeat comes in between
    with coordinating(make_coordinator(tmp_path, 1, rules=rules)) as where, data_port() as port:
        member = Member(at(where), info("x", port=port), clock=lambda: now[0])
        assert not member.lost_contact
        member.join(5)
        time.sleep(0.1)
        now[0] = 1.0
        heartbeat = member._heartbeat()
        assert heartbeat is not None
        now[0] = 3.0  # the answer takes two seconds: what counts is when the coordinator may have heard the question
        member._receive(Alive(number=heartbeat.number))
        now[0] = 10.9
        assert not member.lost_contact
        now[0] = 11.0
        assert member.lost_contact
        member.close()
        now[0] = 3.0
        assert member.lost_contact


def test_a_member_that_was_put_out_hears_it_and_may_come_as_new(tmp_path: Path) -> None:
    rules = quick(3, progress_timeout_seconds=0.3, suspicion_seconds=0.2)
    with coordinating(make_coordinator(tmp_path, 3, rules=rules)) as where, members(*where, ids=IDS) as them:
        changes: list[Change] = []
        them[2].on_change(changes.append)
        join_all(them)
        them[0].suspect(2, "no answer for 120 s", generation=7)  # of another generation: ignored
        time.sleep(0.8)
        assert them[0].generation is not None and them[0].generation.number == 1
        them[0].suspect(2, "no answer for 120 s")
        with pytest.raises(Refused, match="node-2 makes no progress, and node-0 waits for it"):
            them[2].wait_for_generation(1, 5)
        assert them[2].lost_contact
        assert changes[-1].announcement is None
        assert them[0].wait_for_generation(1, 5).number == 2
        them[1].wait_for_generation(1, 5)
        form_all(them[:2])
        with members(*where, ids=["node-2"]) as (again,):
            assert again.join(5).number == 3


def test_a_coordinator_that_comes_back_is_found_and_nothing_changes(tmp_path: Path) -> None:
    with data_port() as port, data_port() as other_port:
        with coordinating(make_coordinator(tmp_path, 2)) as where:
            them = [Member(at(where), info("a", port=port)), Member(at(where), info("b", port=other_port))]
            (generation, _) = join_all(them)
            changes: list[Change] = []
            them[0].on_change(changes.append)
            until(lambda: load(tmp_path / "coordinator.json").roster.formed)  # type: ignore[union-attr]
        until(lambda: not them[0].connected)
        assert them[0].lost_contact
        with coordinating(make_coordinator(tmp_path, 2, token=None)) as where_again:
            assert where_again == where
            assert until(lambda: all(member.connected for member in them)) < 1.5
            time.sleep(1.2)  # longer than the heartbeat timeout
            assert them[0].generation == generation
            assert changes == []
            assert not them[0].lost_contact
            them[1].close()
            assert them[0].wait_for_generation(1, 5).number == 2
            them[0].close()


def test_leaving_while_the_coordinator_is_away_has_an_end(tmp_path: Path) -> None:
    with data_port() as port:
        with coordinating(make_coordinator(tmp_path, 1)) as where:
            member = Member(at(where), info("a", port=port))
            join_all([member])
        begin = time.monotonic()
        member.leave(finished=True)
        assert time.monotonic() - begin < 3


def test_one_state_file_one_coordinator(tmp_path: Path) -> None:
    with coordinating(make_coordinator(tmp_path, 1)) as (address, port):
        with pytest.raises(RunError, match="another coordinator works with"):
            with coordinating(make_coordinator(tmp_path, 1)):
                pass
        other = tmp_path / "other"
        other.mkdir()
        with pytest.raises(PortBusy, match=f"can't listen on 127.0.0.1, port {port}"):
            with coordinating(make_coordinator(other, 1, port=port)):
                pass
        assert wait_for_address(tmp_path / "coordinator.json", 1) == (address, port)
    with pytest.raises(ConfigError, match="is of the run"):
        with coordinating(make_coordinator(tmp_path, 1, run="another")):
            pass
    with pytest.raises(PeerTimeout, match="no coordinator wrote to"):
        wait_for_address(tmp_path / "nothing.json", 0.1)


def test_the_state_is_for_its_owner_only_and_damage_is_told(tmp_path: Path) -> None:
    with coordinating(make_coordinator(tmp_path, 1)):
        file = tmp_path / "coordinator.json"
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert TOKEN in file.read_text()
    table = json.loads(file.read_text())
    for damage in ("", "{}", json.dumps({**table, "port": "x"}), json.dumps({**table, "format": 99})):
        file.write_text(damage)
        with pytest.raises(ConfigError, match="remove it"):
            load(file)


def test_a_full_disk_does_not_stop_the_run(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with coordinating(make_coordinator(tmp_path, 2)) as where, members(*where, ids=IDS[:2]) as them:
        join_all(them)
        blocked = tmp_path / "coordinator.json.new"
        until(lambda: load(tmp_path / "coordinator.json").roster.formed)  # type: ignore[union-attr]
        blocked.mkdir()  # even root can't open a directory for writing
        them[1].close()
        assert them[0].wait_for_generation(1, 5).number == 2
    assert "can't save the roster" in caplog.text


def test_the_wrong_port_and_the_wrong_interface_are_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    with data_port() as nobody:
        pass
    member = Member(at(("127.0.0.1", nobody)), info("x"))
    with pytest.raises(PeerTimeout, match=rf"can't connect to 127.0.0.1:{nobody} by lo .*nobody listens there"):
        member.join(0.3)
    member.close()
