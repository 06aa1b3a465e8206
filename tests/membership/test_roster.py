"""The rules of membership, rule by rule; time is a number here."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import pytest
from people import info

from minga.errors import ConfigError
from minga.membership.messages import (
    Alive,
    Announcement,
    Formed,
    Heartbeat,
    Hello,
    Interrupted,
    Leave,
    Refusal,
    Suspect,
    Waiting,
    Welcome,
)
from minga.membership.roster import Close, Roster
from minga.membership.rules import RosterState, Rules
from minga.membership.suspicion import Retries
from minga.net.generation import MemberInfo, Position
from minga.net.strict import parse

HELLO = {"facts": {"version": "1"}}


class Play:
    """A roster, and members who behave unless told otherwise."""

    def __init__(self, **rules: Any) -> None:
        self.now = 100.0
        self.rules = Rules(**rules)
        self.roster = Roster(self.rules, now=self.now)
        self.heard: dict[int, list[Any]] = {}
        self.links: dict[str, int] = {}
        self.infos: dict[str, MemberInfo] = {}
        self.silent: set[str] = set()
        self.frozen: set[str] = set()
        self.closed: set[int] = set()
        self.steps: dict[str, int] = {}
        self._link = 0

    def come(self, id: str, *, again: bool = False, generation: int = 0, facts: Any = None, **fields: Any) -> list[Any]:
        if not again:
            self.infos[id] = info(id, **fields)
        self._link += 1
        self.links[id] = self._link
        hello = Hello(info=self.infos[id], facts=facts or HELLO["facts"], generation=generation)
        self.roster.hello(self.now, self._link, hello)
        self.deliver()
        return self.heard.get(self._link, [])

    def deliver(self) -> None:
        for effect in self.roster.take_effects():
            if effect.message is not None:
                self.heard.setdefault(effect.link, []).append(effect.message)
            if isinstance(effect, Close):
                self.closed.add(effect.link)

    def form(self, *ids: str) -> None:
        for id in ids or [m.id for m in self.generation.members]:
            self.roster.receive(self.now, self.links[id], Formed(generation=self.roster.state.number))
            self.deliver()

    def pass_time(self, seconds: float) -> None:
        """Heartbeats every half a second from everybody who is not silent; those who are not frozen make steps."""
        for _ in range(round(seconds / 0.1)):
            self.now += 0.1
            if round(self.now * 10) % 5 == 0:
                for id, link in list(self.links.items()):
                    if id not in self.silent and link not in self.closed:
                        if id not in self.frozen:
                            self.steps[id] = self.steps.get(id, 0) + 1
                        position = Position(step=self.steps.get(id, 0), offset=8 * self.steps.get(id, 0))
                        self.roster.receive(self.now, link, Heartbeat(number=1, position=position))
            self.roster.tick(self.now)
            self.deliver()

    def end(self, id: str, **options: Any) -> None:
        self.closed.add(self.links[id])
        self.roster.ended(self.now, self.links[id], **options)
        self.deliver()

    def suspect(self, accuser: str, suspect: str, **fields: Any) -> None:
        message = Suspect(generation=self.roster.state.number, id=suspect, why="no answer", **fields)
        self.roster.receive(self.now, self.links[accuser], message)
        self.deliver()

    @property
    def generation(self) -> Any:
        assert self.roster.state.generation is not None
        return self.roster.state.generation

    @property
    def ids(self) -> list[str]:
        return [member.id for member in self.generation.members]

    def last(self, id: str, kind: type[Any]) -> Any:
        found = [message for message in self.heard.get(self.links[id], []) if isinstance(message, kind)]
        return found[-1] if found else None

    def restart(self) -> None:
        """The coordinator dies, and comes back with what was saved."""
        saved = json.loads(json.dumps(asdict(self.roster.state), default=sorted))
        self.roster = Roster(self.rules, now=self.now, state=parse(RosterState, saved, "roster"))
        self.closed |= set(self.links.values())


def started(count: int = 4, **rules: Any) -> Play:
    play = Play(expect=count, **rules)
    for number in range(count):
        play.come(f"node-{number}")
    play.form()
    assert play.roster.state.formed
    return play


# Beginning


def test_the_first_generation_waits_for_all_and_is_in_the_order_of_names() -> None:
    play = Play(expect=4)
    play.come("node-10")
    play.come("server-0", role="server")
    play.come("node-2")
    assert play.roster.state.generation is None
    assert play.last("node-10", Waiting).message.startswith("3 of 4 members are here")
    play.come("node-1")
    assert play.ids == ["node-1", "node-2", "node-10", "server-0"]
    assert play.generation.number == 1
    assert play.generation.workers == 3
    for id in play.ids:
        told = play.last(id, Announcement)
        assert told.generation == play.generation
        assert told.survivors == ()
    assert isinstance(play.heard[play.links["node-2"]][0], Welcome)


def test_who_leaves_before_the_beginning_is_not_counted() -> None:
    play = Play(expect=2)
    play.come("a")
    play.end("a")
    play.come("b")
    play.roster.receive(play.now, play.links["b"], Leave(finished=False))
    play.come("c")
    assert play.roster.state.generation is None
    play.come("d")
    assert play.ids == ["c", "d"]


def test_heartbeats_are_answered() -> None:
    play = started(1)
    play.roster.receive(play.now, play.links["node-0"], Heartbeat(number=77, position=Position()))
    play.deliver()
    assert play.last("node-0", Alive).number == 77


# Losing members


def test_a_member_whose_connection_ends_is_out_after_a_moment() -> None:
    play = started(4)
    play.pass_time(1.0)
    play.end("node-1")
    assert play.generation.number == 1
    play.pass_time(0.3)
    assert play.ids == ["node-0", "node-2", "node-3"]
    told = play.last("node-3", Announcement)
    assert told.reason == "node-1 is gone: its connection ended"
    assert told.survivors == ("node-0", "node-2", "node-3")
    assert told.position == Position(step=2, offset=16)
    assert told.generation.secret != "" and len({m.secret for m in [told.generation]}) == 1


def test_a_member_that_comes_back_at_once_is_not_out() -> None:
    play = started(3)
    play.end("node-1")
    play.now += 0.1
    heard = play.come("node-1", again=True, generation=1)
    play.pass_time(10)
    assert play.generation.number == 1
    assert not any(isinstance(message, Announcement) for message in heard)


def test_a_connection_that_replaces_an_old_one_ends_it_and_not_the_member() -> None:
    play = started(2)
    old = play.links["node-1"]
    play.come("node-1", again=True, generation=1)
    assert old in play.closed
    play.roster.ended(play.now, old)
    play.pass_time(3)
    assert play.generation.number == 1


def test_two_that_die_together_are_one_change() -> None:
    play = started(4)
    play.end("node-1")
    play.now += 0.1
    play.end("node-2")
    play.pass_time(1)
    assert play.ids == ["node-0", "node-3"]
    assert play.generation.number == 2


def test_silence_is_noticed_after_the_timeout_and_not_before() -> None:
    play = started(3, heartbeat_timeout_seconds=5)
    play.pass_time(1)
    play.silent.add("node-0")
    play.pass_time(4.4)
    assert play.generation.number == 1
    play.pass_time(1.1)
    assert play.ids == ["node-1", "node-2"]
    assert "no sign of life for 5 s" in play.last("node-1", Announcement).reason
    assert "no sign of life" in play.last("node-0", Refusal).reason


def test_leaving_is_a_change_at_once_and_finishing_is_none() -> None:
    play = started(4)
    play.roster.receive(play.now, play.links["node-2"], Leave(finished=False))
    play.deliver()
    assert play.ids == ["node-0", "node-1", "node-3"]
    play.form()
    play.roster.receive(play.now, play.links["node-0"], Leave(finished=True))
    play.deliver()
    play.closed.add(play.links["node-0"])
    play.pass_time(10)
    assert play.generation.number == 2
    assert "finishing" in play.come("late")[-1].reason
    assert not play.roster.done
    for id in ("node-1", "node-3"):
        play.roster.receive(play.now, play.links[id], Leave(finished=True))
    assert play.roster.done


def test_a_loss_while_others_have_finished_leaves_the_rest_going() -> None:
    play = started(3, min_nodes=3)
    play.roster.receive(play.now, play.links["node-0"], Leave(finished=True))
    play.deliver()
    play.end("node-1")
    play.pass_time(1)
    assert play.ids == ["node-2"]


# Enough members


def test_below_min_nodes_everybody_waits_and_is_told_why() -> None:
    play = started(3, min_nodes=2, message_seconds=3)
    play.end("node-0")
    play.end("node-1")
    play.pass_time(0.3)
    assert play.generation.number == 1
    assert "node-0 is gone" in play.last("node-2", Interrupted).reason
    before = len(play.heard[play.links["node-2"]])
    play.pass_time(9.5)
    messages = [m for m in play.heard[play.links["node-2"]][before:] if isinstance(m, Waiting)]
    assert 3 <= len(messages) <= 4
    assert "1 worker is here, at least 2 needed" in messages[-1].message
    play.come("node-7")
    play.pass_time(0.3)
    assert play.ids == ["node-2", "node-7"]
    assert play.last("node-7", Announcement).survivors == ("node-2",)


def test_servers_count_apart() -> None:
    play = Play(expect=3, min_nodes=1, min_servers=1)
    play.come("a")
    play.come("b")
    play.come("s", role="server")
    play.form()
    play.end("s")
    play.pass_time(1)
    assert play.generation.number == 1
    assert "server" in play.last("a", Waiting).message
    play.come("t", role="server")
    play.pass_time(0.3)
    assert play.ids == ["a", "b", "t"]


def test_a_server_that_is_started_again_has_its_old_place() -> None:
    play = Play(expect=4, min_servers=2)
    for id in ("a", "b"):
        play.come(id)
    for id in ("node-9", "node-10"):
        play.come(id, role="server")
    play.form()
    play.end("node-9")
    play.end("a")
    play.pass_time(1)
    play.come("node-9", role="server")
    play.come("a")
    play.pass_time(0.5)
    assert play.ids == ["b", "a", "node-9", "node-10"]  # workers behind those who stayed, servers not


def test_the_smaller_side_of_a_split_waits_and_goes_on_when_it_heals() -> None:
    play = started(5)
    for id in ("node-2", "node-3", "node-4"):
        play.silent.add(id)
    play.pass_time(7)
    assert play.generation.number == 1
    assert "smaller side of a split" in play.last("node-0", Waiting).message
    play.silent.clear()
    play.pass_time(1)
    assert play.generation.number == 2
    assert play.ids == [f"node-{number}" for number in range(5)]


def test_the_coordinator_breaks_a_tie() -> None:
    play = started(2)
    play.silent.add("node-0")
    play.pass_time(6)
    assert play.ids == ["node-1"]


def test_a_majority_is_one_of_the_last_formed_generation() -> None:
    """Generations that were announced but never formed don't let a run shrink below half of what it was."""
    play = started(4)
    play.silent.add("node-3")
    play.pass_time(6)
    assert len(play.ids) == 3  # not formed
    play.silent.add("node-2")
    play.pass_time(6)
    assert len(play.ids) == 2
    play.silent.add("node-1")
    play.pass_time(6)
    assert play.ids == ["node-0", "node-1"], "one of four is no majority"
    play.silent.clear()
    play.pass_time(1)
    play.form()
    play.silent.add("node-1")
    play.pass_time(6)
    assert play.ids == ["node-0"], "one of two, with the coordinator, is"


def test_those_known_to_have_ended_are_no_split() -> None:
    play = started(4)
    for id in ("node-0", "node-2", "node-3"):
        play.end(id)
    play.pass_time(1)
    assert play.ids == ["node-1"]


def test_an_end_that_only_our_own_kernel_tells_is_silence() -> None:
    play = started(4)
    for id in ("node-0", "node-2", "node-3"):
        play.end(id, by_peer=False)
    play.pass_time(8)
    assert play.generation.number == 1


def test_silent_members_that_are_started_again_let_the_run_go_on() -> None:
    play = started(3)
    play.silent |= {"node-1", "node-2"}
    play.pass_time(6)
    assert play.generation.number == 1
    play.silent.clear()
    play.come("node-1")
    play.come("node-2")
    play.pass_time(0.3)
    assert play.generation.number == 2
    assert sorted(play.ids) == ["node-0", "node-1", "node-2"]
    assert play.last("node-1", Announcement).survivors == ("node-0",)


# Joining


def test_joiners_come_in_together_and_not_too_often() -> None:
    play = started(2)
    play.pass_time(5)
    play.come("b")
    play.come("a")
    assert play.generation.number == 1
    play.pass_time(0.3)
    assert play.ids == ["node-0", "node-1", "a", "b"]
    play.form()
    play.come("c")
    play.pass_time(0.8)
    assert play.generation.number == 2
    play.pass_time(0.4)
    assert play.ids == ["node-0", "node-1", "a", "b", "c"]


def test_nobody_joins_while_a_generation_is_being_formed() -> None:
    play = started(2)
    play.pass_time(2)
    play.come("a")
    play.pass_time(1)
    play.come("b")
    play.pass_time(3)
    assert play.generation.number == 2
    play.form()
    play.pass_time(0.1)
    assert play.generation.number == 3


def test_joiners_come_along_when_somebody_is_lost() -> None:
    play = started(3)
    play.pass_time(2)
    play.end("node-0")
    play.now += 0.2
    play.come("z")
    play.pass_time(0.2)
    assert play.ids == ["node-1", "node-2", "z"]


def test_workers_come_before_servers_also_when_they_join_later() -> None:
    play = Play(expect=2)
    play.come("s", role="server")
    play.come("a")
    play.form()
    play.pass_time(2)
    play.come("b")
    play.pass_time(1)
    assert play.ids == ["a", "b", "s"]


# Refusing


def test_zombies_are_refused_and_may_come_as_new() -> None:
    play = started(3)
    play.silent.add("node-2")
    play.pass_time(6)
    assert play.ids == ["node-0", "node-1"]
    for generation in (0, 1, 2, 99):
        (answer,) = play.come("node-2", again=True, generation=generation)
        assert isinstance(answer, Refusal)
        assert "out of the run" in answer.reason and "again as a new member" in answer.reason
    play.form("node-0", "node-1")
    play.silent.clear()
    play.come("node-2")
    play.pass_time(2)
    assert play.ids == ["node-0", "node-1", "node-2"]


def test_a_stranger_that_speaks_of_a_generation_is_refused() -> None:
    play = started(2)
    (answer,) = play.come("node-9", generation=1)
    assert "node-9 speaks of generation 1" in answer.reason


def test_an_id_that_is_taken_is_refused_with_where() -> None:
    play = started(2)
    mine = play.links["node-1"]
    (answer,) = play.come("node-1", address="10.1.1.1")
    assert "there is a node-1 in the run already, at 127.0.0.1:1" in answer.reason
    play.links["node-1"] = mine
    play.pass_time(3)
    assert play.generation.number == 1


def test_other_facts_are_refused_in_words() -> None:
    play = Play(expect=2)
    play.come("a", facts={"version": "0.1", "workload": "aa", "data": "bb"})
    (answer,) = play.come("b", facts={"version": "0.2", "workload": "aa", "data": "cc"})
    assert "version: this run has 0.1, b has 0.2; install the same version" in answer.reason
    assert "data: this run has bb, b has cc; copy the data set" in answer.reason
    assert "workload" not in answer.reason
    (answer,) = play.come("c", facts={"version": "0.1", "workload": "aa", "data": "bb", "new": "1"})
    assert "new: this run has none, c has 1" in answer.reason


def test_a_full_run_refuses() -> None:
    play = started(2, max_members=2)
    assert "max_members" in play.come("node-3")[0].reason


# Suspicion


def test_a_member_that_hangs_is_found_by_its_lack_of_progress() -> None:
    """A ring: 0 waits for 3, 3 for 2, 2 hangs, and 1 waits for 0. All send heartbeats; nobody makes a step."""
    play = started(4)
    play.pass_time(2)
    play.frozen |= {"node-0", "node-1", "node-2", "node-3"}
    play.pass_time(4)
    play.suspect("node-0", "node-3")
    play.suspect("node-3", "node-2")
    play.suspect("node-1", "node-0")
    play.pass_time(0.8)
    assert play.generation.number == 1
    play.pass_time(1.5)
    assert play.ids == ["node-0", "node-1", "node-3"]
    assert "node-2 makes no progress, and node-3 waits for it" in play.last("node-2", Refusal).reason


def test_suspicion_alone_is_not_enough() -> None:
    play = started(3)
    play.suspect("node-0", "node-1")
    play.pass_time(20)
    assert play.generation.number == 1


def test_no_progress_alone_is_not_enough() -> None:
    play = started(3)
    play.frozen |= {"node-0", "node-1", "node-2"}
    play.pass_time(60)
    assert play.generation.number == 1


def test_those_who_wait_for_each_other_form_anew_and_if_they_can_not_connect_then_it_costs_one_of_them() -> None:
    """Nobody hangs: a link is cut, which connecting shows, or their program is wrong, which they find out."""
    play = started(4)
    play.frozen |= set(play.ids)
    play.suspect("node-1", "node-2")
    play.pass_time(0.5)
    play.suspect("node-2", "node-1")  # one is always first
    play.pass_time(6)
    assert (play.generation.number, len(play.ids)) == (2, 4)
    reason = play.last("node-0", Announcement).reason
    assert "node-1 waits for node-2" in reason and "node-2 waits for node-1" in reason
    for id in ("node-0", "node-3"):
        play.form(id)
    play.suspect("node-1", "node-2")
    play.suspect("node-2", "node-1")
    play.pass_time(6)
    assert play.ids == ["node-0", "node-1", "node-3"]


def test_the_one_whom_most_miss_goes() -> None:
    play = started(4)
    play.frozen |= set(play.ids)
    for number in (1, 2):
        for other in ("node-1", "node-2", "node-3"):
            play.suspect("node-0", other)
            play.suspect(other, "node-0")
        assert (play.generation.number, len(play.ids)) == (number, 4)
        play.pass_time(6)
    assert play.ids == ["node-1", "node-2", "node-3"]


def test_a_broken_connection_between_living_members_is_formed_anew_with_both() -> None:
    play = started(3)
    play.pass_time(2)
    play.suspect("node-0", "node-1", broken=True)
    play.pass_time(0.7)
    assert play.generation.number == 2
    assert play.ids == ["node-0", "node-1", "node-2"]
    assert "node-0 lost its connection to node-1" in play.last("node-2", Announcement).reason


def test_a_connection_that_stays_broken_costs_one_member_within_two_seconds() -> None:
    play = started(3)
    play.pass_time(2)
    begin = play.now
    for accuser, accused in (("node-0", "node-1"), ("node-1", "node-0")):
        play.suspect(accuser, accused, broken=True)
    play.pass_time(0.6)
    play.form("node-2")
    for accuser, accused in (("node-0", "node-1"), ("node-1", "node-0")):
        play.suspect(accuser, accused, broken=True)
    play.pass_time(1.1)
    assert play.ids == ["node-0", "node-2"]
    assert play.now - begin < 2


def fail_to_form(play: Play) -> None:
    """node-2 and node-1 can't reach each other, and node-0 has connections to both."""
    play.form("node-0")
    for accuser, accused in (("node-1", "node-2"), ("node-2", "node-1")):
        play.suspect(accuser, accused)
    play.frozen |= {"node-1", "node-2"}
    play.pass_time(6.5)
    play.frozen.clear()


def test_two_who_never_reach_each_other_disturb_the_others_ever_more_seldom() -> None:
    play = started(3)
    play.suspect("node-1", "node-2", broken=True)
    pauses = []
    for _ in range(4):
        play.pass_time(0.7)
        fail_to_form(play)
        assert play.ids == ["node-0", "node-1"]
        play.form()
        began = play.now
        play.come("node-2")
        while play.ids != ["node-0", "node-1", "node-2"]:
            assert play.now < began + 100
            play.pass_time(0.1)
        pauses.append(play.now - began)
    assert [round(pause / 5) for pause in pauses] == [1, 2, 4, 8]
    assert "4 times in a row" in play.last("node-2", Waiting).message
    play.form()  # the cable is plugged in again, and they train
    play.pass_time(2)
    play.suspect("node-1", "node-2", broken=True)
    play.pass_time(0.7)
    fail_to_form(play)
    play.form()
    play.come("node-2")
    play.pass_time(6)
    assert play.ids == ["node-0", "node-1", "node-2"]


def test_others_may_join_while_one_has_to_wait() -> None:
    play = started(3)
    play.suspect("node-1", "node-2", broken=True)
    play.pass_time(0.7)
    fail_to_form(play)
    play.form()
    play.come("node-2")
    play.come("node-3")
    play.pass_time(2)
    assert play.ids == ["node-0", "node-1", "node-3"]
    play.form()
    play.pass_time(5)
    assert play.ids == ["node-0", "node-1", "node-3", "node-2"]


def test_who_has_to_wait_is_let_in_at_once_where_nobody_can_go_on_without_it() -> None:
    play = started(3, min_nodes=2)
    play.suspect("node-1", "node-2", broken=True)
    play.pass_time(0.7)
    fail_to_form(play)
    play.form()
    play.come("node-2")
    play.pass_time(1)
    assert play.ids == ["node-0", "node-1"]
    play.end("node-1")
    play.pass_time(1)
    assert play.ids == ["node-0", "node-2"]


def test_where_connections_carry_nothing_any_more_it_takes_ever_longer_too() -> None:
    play = started(3)
    play.frozen |= {"node-1", "node-2"}
    play.suspect("node-1", "node-2")
    play.suspect("node-2", "node-1")
    play.pass_time(6)
    assert (play.generation.number, len(play.ids)) == (2, 3)  # nobody hangs; who hears nothing forms nothing
    pauses = []
    for _ in range(3):
        fail_to_form(play)
        assert play.ids == ["node-0", "node-1"]
        play.form()
        began = play.now
        play.come("node-2")
        while play.ids != ["node-0", "node-1", "node-2"]:
            assert play.now < began + 100
            play.pass_time(0.1)
        pauses.append(play.now - began)
    assert [round(pause / 5) for pause in pauses] == [1, 2, 4]


def test_who_still_makes_steps_is_waited_for_when_others_form() -> None:
    """With local steps a member hears of a new generation only after some of them."""
    play = started(3)
    play.come("node-3")
    play.pass_time(1.5)
    assert play.ids == ["node-0", "node-1", "node-2", "node-3"]
    play.form("node-1", "node-2", "node-3")
    for accuser in ("node-1", "node-2", "node-3"):
        play.suspect(accuser, "node-0")
    play.pass_time(15)
    assert play.ids == ["node-0", "node-1", "node-2", "node-3"]


def test_failures_without_end_do_not_end_the_coordinator() -> None:
    retries = Retries(5.0)
    for now in range(3000):
        retries.failed(float(now), "node-1", "a wall")
    assert retries.due("node-1") == 2999 + 300


def test_what_is_said_of_old_generations_changes_nothing() -> None:
    play = started(3)
    play.end("node-2")
    play.pass_time(1)
    play.frozen |= {"node-0", "node-1"}
    play.roster.receive(play.now, play.links["node-0"], Suspect(generation=1, id="node-1", why="late"))
    play.roster.receive(play.now, play.links["node-0"], Formed(generation=1))
    play.pass_time(8)
    assert play.generation.number == 2
    assert not play.roster.members["node-0"].formed


# Forming


def test_who_does_not_form_in_time_is_out() -> None:
    play = started(4, forming_timeout_seconds=10)
    play.end("node-3")
    play.pass_time(1)
    play.form("node-0", "node-2")
    play.pass_time(10)
    assert play.ids == ["node-0", "node-2"]
    assert "was not formed within 10 s by node-1" in play.last("node-1", Refusal).reason


def test_when_nobody_can_form_all_try_again() -> None:
    play = started(3, forming_timeout_seconds=10)
    play.end("node-2")
    play.pass_time(11)
    assert play.generation.number == 3
    assert play.ids == ["node-0", "node-1"]


# Restarts of the coordinator, and its own pauses


def test_a_restarted_coordinator_goes_on_and_disturbs_nobody() -> None:
    play = started(3)
    before = play.generation
    play.restart()
    play.now += 0.5
    for id in ("node-0", "node-1", "node-2"):
        heard = play.come(id, again=True, generation=1)
        assert [type(message) for message in heard] == [Welcome]
    play.pass_time(10)
    assert play.generation == before
    play.end("node-1")
    play.pass_time(1)
    assert play.generation.number == 2


def test_an_announcement_that_was_saved_but_not_sent_is_sent_after_the_restart() -> None:
    play = started(3)
    play.end("node-2")
    play.pass_time(0.5)
    assert play.generation.number == 2
    play.restart()
    for id in ("node-0", "node-1"):
        heard = play.come(id, again=True, generation=1)
        assert heard[-1].generation == play.generation
    assert play.generation.number == 2


def test_who_does_not_come_back_after_a_restart_is_out() -> None:
    play = started(3)
    play.restart()
    for id in ("node-0", "node-1"):
        play.come(id, again=True, generation=1)
    play.pass_time(5.5)
    assert play.generation.number == 1
    play.pass_time(1)
    assert play.ids == ["node-0", "node-1"]
    assert "node-2 is gone: did not come back" in play.last("node-0", Announcement).reason


def test_a_member_that_died_with_the_coordinator_is_out_soon_if_others_say_so() -> None:
    play = started(3)
    play.restart()
    play.now += 0.3
    for id in ("node-0", "node-1"):
        play.come(id, again=True, generation=1)
    play.suspect("node-0", "node-2", broken=True)
    play.pass_time(1.6)
    assert play.ids == ["node-0", "node-1"]


def test_a_restart_remembers_that_the_generation_was_interrupted() -> None:
    play = started(2, min_nodes=2)
    play.end("node-1")
    play.pass_time(0.5)
    assert play.last("node-0", Interrupted)
    play.restart()
    play.come("node-0", again=True, generation=1)
    play.come("node-1", again=True, generation=1)
    assert play.generation.number == 2
    assert play.ids == ["node-0", "node-1"]


def test_a_restart_remembers_zombies_and_who_has_finished() -> None:
    play = started(3)
    play.silent.add("node-2")
    play.pass_time(6)
    play.form("node-0", "node-1")
    play.restart()
    assert isinstance(play.come("node-2", again=True, generation=1)[0], Refusal)
    play.come("node-0", again=True, generation=2)
    play.come("node-1", again=True, generation=2)
    play.roster.receive(play.now, play.links["node-0"], Leave(finished=True))
    play.restart()
    play.come("node-1", again=True, generation=2)
    play.closed.add(play.links["node-0"])
    play.pass_time(8)
    assert play.generation.number == 2
    play.roster.receive(play.now, play.links["node-1"], Leave(finished=True))
    assert play.roster.done


def test_a_state_that_is_older_than_the_run_does_not_repeat_numbers() -> None:
    play = started(2)
    play.restart()
    for id in ("node-0", "node-1"):
        play.come(id, again=True, generation=7)
    assert play.generation.number == 8


def test_a_coordinator_that_was_stopped_does_not_blame_the_members() -> None:
    play = started(3)
    play.pass_time(2)
    play.now += 60
    play.roster.tick(play.now)
    play.pass_time(1)
    assert play.generation.number == 1
    play.silent.add("node-1")
    play.pass_time(6)
    assert play.ids == ["node-0", "node-2"]


# Settings


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"expect": 0}, "expect"),
        ({"expect": 2, "min_nodes": 3}, "min_nodes = 3"),
        ({"heartbeat_timeout_seconds": 1.5}, "late heartbeat"),
        ({"message_seconds": 0}, "message_seconds"),
    ],
)
def test_rules_that_can_not_work(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        Rules(**fields)


# Nonsense


def accuse(play: Play, accuser: str, suspect: str) -> None:
    number = play.roster.state.number
    word = Suspect(generation=number, id=suspect, why="it sent 3 bytes", broken=True, wrong=True)
    play.roster.receive(play.now, play.links[accuser], word)
    play.deliver()


def test_who_sent_most_others_what_can_not_be_is_out_for_good() -> None:
    play = started(4)
    accuse(play, "node-0", "node-2")
    assert play.generation.number == 1  # one of three may be wrong itself
    accuse(play, "node-1", "node-2")
    play.pass_time(0.3)
    assert play.ids == ["node-0", "node-1", "node-3"]
    assert "node-2 sent something malformed, says node-0 (it sent 3 bytes)" in play.last("node-2", Refusal).reason
    assert "for good" in play.come("node-2")[-1].reason
    play.restart()
    assert "for good" in play.come("node-2")[-1].reason, "a new coordinator knows"


def test_who_sends_one_other_member_nonsense_again_and_again_is_out() -> None:
    play = started(4)
    for number in (1, 2, 3):
        assert play.generation.number == number
        accuse(play, "node-2", "node-1")  # as it would: who is accused is not believed
        accuse(play, "node-3", "node-2")
        play.pass_time(1)
        play.form()
    assert play.ids == ["node-0", "node-1", "node-3"]


def test_a_single_voice_does_not_put_anybody_out() -> None:
    play = started(4)
    accuse(play, "node-3", "node-0")
    play.pass_time(1)
    assert play.ids == ["node-0", "node-1", "node-2", "node-3"]
