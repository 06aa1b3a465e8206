"""A shard comes back from its snapshot and its log to the same bits, whatever happened to the files."""

from __future__ import annotations

import errno
import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from minga.ledger import Period
from minga.replica import Replica
from minga.servers.disk_ledger import DiskLedger, SnapshotRule
from minga.servers.files import ShardFiles
from minga.shard import Push, Shard, Update

PERIOD = Period(1, 0, {"epoch": 0, "offset": 0, "samples": 10, "owed": []}, ("a", "b"))
OPTIMIZERS: list[Callable[..., torch.optim.Optimizer]] = [
    lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01),
    lambda parameters: torch.optim.AdamW(parameters, lr=0.01),
]


def make_shard(optimizer: int = 0) -> Shard:
    torch.manual_seed(0)
    model = nn.Linear(7, 5)
    return Replica(model, OPTIMIZERS[optimizer](model.parameters())).shard(slice(3, 31))


def updates(number: int, seed: int = 0) -> list[Update]:
    """Of all kinds: of one worker, of two apart, of two together, of nobody."""
    generator = torch.Generator().manual_seed(seed)

    def vector() -> Tensor:
        return torch.randn(28, generator=generator)

    made = []
    for step in range(1, number + 1):
        a, b = Push("a", step, step, 0.5), Push("b", step, step, 0.25)
        rates = (0.1 / step,)
        kind = step % 4
        if kind == 0:
            left_out = tuple(push._replace(share=math.nan) for push in (a, b))
            made.append(Update(left_out, rates, (), together=True))
        elif kind == 1:
            made += [Update((a,), rates, (vector(),), together=True), Update((b,), rates, (vector(),), together=True)]
        else:
            made.append(Update((a, b), rates, (vector(), vector())))
    return made


def put_in(ledger: DiskLedger, shard: Shard, pushed: list[Update]) -> None:
    for update in pushed:
        ledger.append(shard, update)
        if shard.apply(update):
            ledger.applied(shard)


def bits(shard: Shard) -> list[Tensor]:
    state = [tensor for piece in shard.optimizer_state() for tensor in piece.tensors()]
    return [shard.parameters.clone(), *(tensor.clone() for tensor in state)]


def equal(one: list[Tensor], other: list[Tensor]) -> bool:
    return len(one) == len(other) and all(torch.equal(*pair) for pair in zip(one, other, strict=True))


@pytest.mark.parametrize("optimizer", [0, 1])
@pytest.mark.parametrize("every", [1000, 3])
def test_a_killed_server_comes_back_to_the_same_bits(tmp_path: Path, optimizer: int, every: int) -> None:
    shard, ledger = make_shard(optimizer), DiskLedger(tmp_path / "s", SnapshotRule(updates=every))
    ledger.begin(shard, PERIOD)
    put_in(ledger, shard, updates(17))
    again, new = make_shard(optimizer), DiskLedger(tmp_path / "s")
    ledger.close()
    assert new.holds
    assert new.restore(again)
    assert equal(bits(again), bits(shard))
    assert (new.version, new.period, new.book.to_dict()) == (ledger.version, PERIOD, ledger.book.to_dict())
    # ... and goes on from there, also through a second death.
    for each, theirs in ((shard, ledger), (again, new)):
        if theirs is new:
            new.begin(again, PERIOD)
            put_in(new, again, updates(5, seed=1))
        else:
            for update in updates(5, seed=1):
                each.apply(update)
    assert equal(bits(again), bits(shard))
    new.close()
    third, last = make_shard(optimizer), DiskLedger(tmp_path / "s")
    assert last.restore(third)
    assert equal(bits(third), bits(shard))


def test_a_torn_record_is_left_out(tmp_path: Path) -> None:
    shard, ledger = make_shard(), DiskLedger(tmp_path)
    ledger.begin(shard, PERIOD)
    *before, last = updates(6)
    put_in(ledger, shard, before)
    wanted = bits(shard)
    put_in(ledger, shard, [last])
    ledger.close()
    log = tmp_path / "log-000001"
    for cut in (1, 40, 200):
        log.write_bytes(log.read_bytes()[:-cut])
        again = make_shard()
        assert DiskLedger(tmp_path).restore(again)
        assert equal(bits(again), wanted)


def test_a_changed_byte_is_noticed(tmp_path: Path) -> None:
    shard, ledger = make_shard(), DiskLedger(tmp_path)
    ledger.begin(shard, PERIOD)
    beginning = bits(shard)
    put_in(ledger, shard, updates(3))
    ledger.close()
    log = tmp_path / "log-000001"
    content = bytearray(log.read_bytes())
    content[400] ^= 1
    log.write_bytes(content)
    again = make_shard()
    assert DiskLedger(tmp_path).restore(again)
    assert equal(bits(again), beginning)
    snapshot = tmp_path / "snapshot-000001"
    content = bytearray(snapshot.read_bytes())
    content[-1] ^= 1
    snapshot.write_bytes(content)
    assert not DiskLedger(tmp_path).restore(make_shard())


@pytest.mark.parametrize("every", [1000, 2])
def test_undoing_is_as_if_it_had_never_come(tmp_path: Path, every: int) -> None:
    pushed = updates(14)
    shard, ledger = make_shard(), DiskLedger(tmp_path, SnapshotRule(updates=every))
    ledger.begin(shard, PERIOD)
    put_in(ledger, shard, pushed)
    undone = {("a", 14)}
    assert ledger.undo(shard, undone)
    expected = make_shard()
    for update in pushed:
        kept = update.without(undone)
        if kept is not None:
            expected.apply(kept)
    assert equal(bits(shard), bits(expected))
    assert (ledger.book.last("a"), ledger.book.last("b")) == (13, 14)
    # It stays undone for who is killed later, and numbers go on.
    ledger.begin(shard, Period(2, 14, PERIOD.order, ("b",)))
    more = [Update((Push("b", 15, 15, 1.0),), (0.1,), (torch.ones(28),), together=True)]
    put_in(ledger, shard, more)
    ledger.close()
    again, new = make_shard(), DiskLedger(tmp_path)
    assert new.restore(again)
    assert equal(bits(again), bits(shard))
    assert (new.book.last("a"), new.book.last("b")) == (13, 15)
    assert new.period is not None and new.period.number == 2


def test_what_was_undone_is_in_no_snapshot_that_stays(tmp_path: Path) -> None:
    shard, ledger = make_shard(), DiskLedger(tmp_path, SnapshotRule(updates=3))
    ledger.begin(shard, PERIOD)
    pushed = [Update((Push("a", n, n, 1.0),), (0.1,), (torch.ones(28) * n,), together=True) for n in range(1, 4)]
    put_in(ledger, shard, pushed)  # the third is in the second snapshot
    assert ledger.undo(shard, {("a", 3)})
    ledger.begin(shard, Period(2, 2, PERIOD.order, ("b",)))
    more = [Update((Push("b", n, n, 1.0),), (0.1,), (torch.ones(28),), together=True) for n in range(1, 3)]
    put_in(ledger, shard, more)
    ledger.close()
    again = make_shard()
    assert DiskLedger(tmp_path).restore(again)
    expected = make_shard()
    for update in (*pushed[:2], *more):
        expected.apply(update)
    assert equal(bits(again), bits(shard))
    assert equal(bits(again), bits(expected))


def test_of_a_mean_nothing_is_left(tmp_path: Path) -> None:
    a, b = Push("a", 1, 1, 0.5), Push("b", 1, 1, 0.5)
    update = Update((a, b), (0.1,), (torch.ones(28),), together=True)
    assert update.without({("a", 1), ("b", 1)}) is None
    assert update.without({("c", 1)}) is update


def test_old_files_go_when_nothing_before_may_be_undone(tmp_path: Path) -> None:
    now = 0.0
    shard = make_shard()
    ledger = DiskLedger(tmp_path, SnapshotRule(updates=10, seconds=5.0), clock=lambda: now)
    ledger.begin(shard, PERIOD)
    one = [Update((Push("a", n, n, 1.0),), (0.1,), (torch.ones(28),), together=True) for n in range(1, 60)]
    put_in(ledger, shard, one[:10])  # the tenth makes a snapshot
    ledger._writing.result()  # type: ignore[union-attr]
    # The tenth is in the snapshot, and its worker has not been heard of since: what is older must stay.
    put_in(ledger, shard, [Update((Push("b", 1, 1, 1.0),), (0.1,), (torch.ones(28),), together=True)])
    assert ShardFiles(tmp_path).numbers() == [1, 2]
    put_in(ledger, shard, one[10:11])
    assert ShardFiles(tmp_path).numbers() == [2]
    assert not (tmp_path / "log-000001").exists()
    now = 6.0  # also by time
    put_in(ledger, shard, one[11:12])
    ledger._writing.result()  # type: ignore[union-attr]
    put_in(ledger, shard, one[12:13])
    assert ShardFiles(tmp_path).numbers() == [2, 3]  # one has pushed since, the other has not
    put_in(ledger, shard, [Update((Push("b", 2, 2, 1.0),), (0.1,), (torch.ones(28),), together=True)])
    assert ShardFiles(tmp_path).numbers() == [3]
    assert ledger.costs()["snapshots"] == 2
    ledger.close(finished=True)
    assert not tmp_path.exists()


def test_a_full_disk_does_not_end_the_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    shard, ledger = make_shard(), DiskLedger(tmp_path / "s")
    ledger.begin(shard, PERIOD)
    put_in(ledger, shard, updates(3))

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("minga.servers.files.write_record", full)
    put_in(ledger, shard, updates(5, seed=2))
    assert "No space left on device" in caplog.text
    assert caplog.text.count("can't keep its updates") == 1
    monkeypatch.undo()
    # What is there would be too old: nobody must take it for the truth.
    assert not DiskLedger(tmp_path / "s").holds
    expected = make_shard()
    for update in [*updates(3), *updates(5, seed=2)]:
        expected.apply(update)
    assert equal(bits(shard), bits(expected))
    ledger.close()
