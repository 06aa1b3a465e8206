"""What must hold whatever happens: long random lives of a run, the same ones every time."""

from __future__ import annotations

import json
import random
from dataclasses import asdict, dataclass, field

import pytest
from people import info

from minga.membership.messages import Announcement, Formed, Heartbeat, Hello, Leave, Refusal, Suspect, Welcome
from minga.membership.roster import Close, Roster
from minga.membership.rules import RosterState, Rules
from minga.net.generation import MemberInfo, Position
from minga.net.strict import parse


@dataclass
class Process:
    """One process of a node, as it really is; the roster knows only what it is told."""

    info: MemberInfo
    link: int = 0
    alive: bool = True
    reachable: bool = True
    hung: bool = False
    told_out: bool = False
    left: bool = False
    generation: int = 0
    formed: int = 0
    step: int = 0
    refused: list[str] = field(default_factory=list)

    @property
    def may_go_on_unseen(self) -> bool:
        return self.alive and not self.told_out and not self.left


class World:
    """Nodes, a network and a coordinator, all under the command of a random number generator."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        count = self.random.randint(1, 7)
        self.rules = Rules(
            expect=count, min_nodes=self.random.randint(1, count), forming_timeout_seconds=8, max_members=12
        )
        self.now = 0.0
        self.roster = Roster(self.rules, now=0.0)
        self.processes: list[Process] = []
        self.announced: list[tuple[float, Announcement]] = []
        self.formed: list[dict[str, str]] = []
        """Incarnation and id of the members of each formed generation."""
        self.vouched: set[str] = set()
        """Incarnations of the last one for whom a newer process, or the end of a connection, has spoken."""
        self.was_out: set[str] = set()
        self.links = 0
        self.coordinator_up = True
        for number in range(count):
            self.start(f"node-{number}")

    def start(self, id: str) -> None:
        process = Process(info(id, incarnation=f"{self.random.getrandbits(64):016x}"))
        self.processes.append(process)
        self.connect(process)

    def connect(self, process: Process) -> None:
        if not (self.coordinator_up and process.reachable and process.alive) or process.told_out or process.left:
            return
        self.links += 1
        process.link = self.links
        process_is_out = process.info.incarnation in self.was_out
        hello = Hello(
            info=process.info,
            generation=process.generation,
            formed=process.formed,
            position=Position(step=process.step),
        )
        accepted = not self.roster.hello(self.now, process.link, hello)
        assert not (accepted and process_is_out), f"{process.info.id}, a zombie, was let in"
        if accepted:
            self.vouched.discard(process.info.incarnation)
        self.settle()

    def settle(self) -> None:
        """Deliver what the roster says, and check it."""
        formed = self.roster.state.formed_members
        if formed and (not self.formed or self.formed[-1] != formed):
            self.check_formed(dict(formed))
        hung_up = []
        for effect in self.roster.take_effects():
            process = next((process for process in self.processes if process.link == effect.link), None)
            message = effect.message
            if isinstance(message, Announcement):
                self.check(message)
            if process is None:
                continue
            # What is sent to somebody behind a cut does not arrive.
            if process.reachable and process.alive:
                if isinstance(message, Announcement):
                    assert message.generation.number > process.generation
                    process.generation = message.generation.number
                elif isinstance(message, Refusal):
                    process.told_out = True
                    process.refused.append(message.reason)
                else:
                    assert process.info.incarnation not in self.was_out or not isinstance(message, Welcome)
            if isinstance(effect, Close):
                process.link = 0
                if process.told_out:
                    hung_up.append(effect.link)
        for link in hung_up:
            self.roster.ended(self.now, link)
        if hung_up:
            self.settle()

    def check(self, message: Announcement) -> None:
        generation = message.generation
        if self.announced and generation == self.announced[-1][1].generation:
            return  # the same one, told to another member
        members = generation.members
        workers = [member for member in members if member.role == "worker"]
        assert len({member.id for member in members}) == len(members)
        assert len(workers) >= (1 if self.roster.state.finished else self.rules.min_nodes)
        assert not {member.incarnation for member in members} & self.was_out, "somebody came back from the dead"
        if self.announced:
            moment, previous = self.announced[-1]
            assert generation.number > previous.generation.number, "numbers only grow"
            assert generation.secret != previous.generation.secret
            before = {member.incarnation for member in previous.generation.members}
            stay = before & {member.incarnation for member in members}
            self.was_out |= before - stay
            if message.reason.endswith(" joined"):
                assert before == stay
                assert self.now - moment >= self.rules.join_interval_seconds - 1e-6, "joins come too often"
            old_order = [m.incarnation for m in previous.generation.members if m.incarnation in stay]
            assert old_order == [m.incarnation for m in members if m.incarnation in stay], "survivors keep their order"
        if self.formed:
            last = self.formed[-1]
            assert set(message.survivors) == {last[m.incarnation] for m in members if m.incarnation in last}
        self.announced.append((self.now, message))

    def check_formed(self, members: dict[str, str]) -> None:
        """A new formed generation overlaps with the last one in at least half of those that may still go on."""
        for process in self.processes:
            if process.info.incarnation in members:
                assert process.formed == max(a.generation.number for _, a in self.announced if self.has(a, members))
        if self.formed:
            last = self.formed[-1]
            unseen = {
                p.info.incarnation
                for p in self.processes
                if p.info.incarnation in last.keys() - members.keys() - self.vouched and p.may_go_on_unseen
            }
            stayed = len(last.keys() & members.keys())
            assert stayed >= len(unseen), f"{stayed} went on while {len(unseen)} of the last generation may have"
        self.formed.append(members)
        self.vouched = set()

    @staticmethod
    def has(announcement: Announcement, members: dict[str, str]) -> bool:
        return {member.incarnation for member in announcement.generation.members} == members.keys()

    def happen(self) -> None:
        """One random event."""
        dice = self.random
        process = dice.choice(self.processes)
        match dice.choices(
            ["form", "cut", "heal", "kill", "start", "restart", "hang", "suspect", "leave", "drop", "pause", "old"],
            [40, 4, 6, 4, 5, 2, 2, 4, 1, 3, 1, 2],
        )[0]:
            case "form":
                for each in self.processes:
                    if each.link and each.reachable and not each.hung and each.generation and each.alive:
                        each.formed = each.generation
                        self.roster.receive(self.now, each.link, Formed(generation=each.generation))
                        self.settle()
            case "cut":
                process.reachable = False
            case "heal":
                for each in self.processes:
                    each.reachable = each.reachable or dice.random() < 0.8
            case "kill":
                process.alive = False
                self.drop(process)
            case "start":
                used = [each.info.id for each in self.processes if each.alive and not each.told_out]
                free = [f"node-{n}" for n in range(9) if f"node-{n}" not in used]
                if free and len(used) < 10:
                    id = dice.choice(free)
                    self.start(id)
                    self.vouch(id)
            case "restart":
                saved = json.loads(json.dumps(asdict(self.roster.state), default=sorted))
                self.roster = Roster(self.rules, now=self.now, state=parse(RosterState, saved, "roster"))
                for each in self.processes:
                    each.link = 0
            case "hang":
                process.hung = True
            case "suspect":
                other = dice.choice(self.processes)
                if process.link and process.reachable:
                    suspect = Suspect(
                        generation=process.generation, id=other.info.id, why="?", broken=dice.random() < 0.3
                    )
                    self.roster.receive(self.now, process.link, suspect)
                    self.settle()
            case "leave":
                if process.link and process.reachable and process.alive:
                    process.left = True
                    self.roster.receive(self.now, process.link, Leave(finished=False))
                    self.settle()
            case "drop":
                self.drop(process)
            case "pause":
                self.now += 30  # the coordinator's process stood still
                self.roster.tick(self.now)
                self.settle()
            case "old":
                # A process that was told that it is out tries again all the same.
                if process.told_out and process.alive:
                    process.told_out = False
                    process.reachable = True
                    self.connect(process)
                    if process.info.incarnation in self.was_out:
                        assert process.told_out

    def vouch(self, id: str) -> None:
        self.vouched = self.vouched | {p.info.incarnation for p in self.processes[:-1] if p.info.id == id}

    def drop(self, process: Process) -> None:
        if process.link and process.reachable:
            link, process.link = process.link, 0
            self.vouched = self.vouched | {process.info.incarnation}
            self.roster.ended(self.now, link)
            self.settle()

    def pass_time(self, seconds: float) -> None:
        for _ in range(round(seconds / 0.1)):
            self.now += 0.1
            for process in self.processes:
                if process.link and process.reachable and process.alive and self.random.random() < 0.2:
                    process.step += not process.hung and process.formed == process.generation
                    heartbeat = Heartbeat(number=1, position=Position(step=process.step))
                    self.roster.receive(self.now, process.link, heartbeat)
                elif not process.link and self.random.random() < 0.2:
                    self.connect(process)
            self.roster.tick(self.now)
            self.settle()


@pytest.mark.parametrize("seed", range(120))
def test_random_lives_keep_all_promises(seed: int) -> None:
    world = World(seed)
    for _ in range(120):
        world.happen()
        world.pass_time(world.random.choice([0.0, 0.1, 0.3, 1.0, 3.0]))
    # In the end the network is whole: whoever is there ends in one formed generation, if they are enough.
    for process in world.processes:
        process.reachable, process.hung = True, False
    for _ in range(60):
        world.pass_time(0.5)
        for process in world.processes:
            if process.link and process.generation and process.alive:
                process.formed = process.generation
                world.roster.receive(world.now, process.link, Formed(generation=process.generation))
                world.settle()
    here = [p for p in world.processes if p.alive and not p.told_out and not p.left]
    state = world.roster.state
    if state.generation is not None and len(here) >= world.rules.min_nodes and not world.roster.why_waiting:
        assert state.formed
        assert sorted(state.formed_members) == sorted(p.info.incarnation for p in here)


def test_the_random_lives_are_lively() -> None:
    """Otherwise they would prove nothing."""
    announced = formed = refused = 0
    for seed in range(8):
        world = World(seed)
        for _ in range(120):
            world.happen()
            world.pass_time(world.random.choice([0.0, 0.1, 0.3, 1.0, 3.0]))
        announced += len(world.announced)
        formed += len(world.formed)
        refused += sum(len(process.refused) for process in world.processes)
    assert announced > 60
    assert formed > 25
    assert refused > 20
