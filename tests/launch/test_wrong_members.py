"""Members that know the token and send something malformed: put out with a line in the log, and the run is unharmed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

from helpers.several_machines import Host, digests, events, step_of, until
from minga import Experiment, Training
from minga.comm.tcp import DataListener, TcpTransport
from minga.comm.threads import ThreadWorld
from minga.errors import PeerLost, Refused
from minga.membership.member import Member
from minga.membership.protocol import CoordinatorAddress
from minga.net.generation import MemberInfo, new_incarnation
from minga.runs.workload import Workload
from minga.strategies import AllReduce
from minga.testing.problems import blobs, sgd_with_momentum
from minga.training.checkpoints.snapshot import take
from minga.training.given_up import exchange
from minga.training.train_state import build_train_state

pytestmark = pytest.mark.chaos


def state_of(change: Callable[[nn.Module], nn.Module]) -> bytes:
    """The state of a model that is like that of the run but for `change`."""
    import dataclasses

    workload: Workload = blobs(optimizer=sgd_with_momentum)
    workload = dataclasses.replace(workload, model=lambda: change(blobs().model()))
    train_state = build_train_state(Experiment(workload="blobs", training=Training(steps=9)), workload, 0)
    comm = ThreadWorld(1).transport(0)
    AllReduce().start(train_state.replica, comm)
    return take(train_state, AllReduce(), comm, shared_only=True).to_bytes()


def pretend(host: Host, run: Path, id: str, blob: bytes) -> str:
    """Join as one that is far ahead of all others, and hand them this state; the coordinator's last word."""
    facts = json.loads((run / "coordinator.json").read_text())["roster"]["facts"]
    with DataListener("127.0.0.1") as listener:
        info = MemberInfo(id=id, incarnation=new_incarnation(), address="127.0.0.1", port=listener.port)
        address, port = host.address
        where = CoordinatorAddress(address=address, port=port, token=host.listening.token, run=run.name)
        member = Member(where, info, facts)
        try:
            generation = member.join(30)
            rank = generation.rank_of(id)
            comm = TcpTransport(generation, rank, listener, 20)
            try:
                comm.wait_until_connected()
                exchange(comm, None)
                member.formed(generation.number)
                table = [torch.empty(6, dtype=torch.int64) for _ in generation.members]
                table[rank] = torch.tensor([1, 1_000_000, 7, 0, 0, 0])
                comm.all_gather(table)
                position = {"epoch": 0, "offset": 0, "samples": len(blobs().train), "owed": []}
                word = json.dumps({"step": 1_000_000, "order": position, "agreed_facts": {}}).encode()
                for other in range(rank):
                    for content in (word, blob):
                        comm.send(torch.tensor([len(content)]), other)
                        comm.send(torch.frombuffer(bytearray(content), dtype=torch.uint8), other)
                member.wait_for_generation(generation.number, 20)
            except PeerLost:  # they hang up
                member.wait_for_generation(generation.number, 20)
            finally:
                comm.abort("done")
                comm.close()
            return "it is still in"
        except Refused as refused:
            return str(refused)
        finally:
            member.close()


WRONG: dict[str, Callable[[], bytes]] = {
    "shapes": lambda: state_of(lambda model: nn.Sequential(model, nn.Linear(3, 3)).double()),
    "types": lambda: state_of(lambda model: model.float()),
    "garbage": lambda: b"\xff" * 1000,
}


@pytest.mark.parametrize(
    ("kinds", "steps"),
    [(["shapes"], 250), pytest.param(["types", "garbage"], 450, marks=pytest.mark.slow)],
    ids=["shapes", "types and garbage"],
)
def test_who_sends_what_can_not_be_is_out_and_the_others_go_on(tmp_path: Path, kinds: list[str], steps: int) -> None:
    wrong = {id: WRONG[id]() for id in kinds}
    host = Host(tmp_path / "first", expect=2, here=2, steps=steps)
    run = until(lambda: next(iter(host.runs.glob("*")), None))
    until(lambda: step_of(host.runs) > 5)
    for id, blob in wrong.items():
        before = step_of(host.runs)
        assert "sent something malformed" in pretend(host, run, id, blob)
        until(lambda before=before: step_of(host.runs) > before + 5)
    log = run / "logs" / "coordinator.log"
    until(lambda: all(f"out: {id} sent something malformed" in log.read_text() for id in wrong))
    assert {event["ranks"] for event in events(host.runs, "recovered")} <= {2, 3}
    assert host.end().steps == steps
    assert len(digests(host.runs)) == 1
