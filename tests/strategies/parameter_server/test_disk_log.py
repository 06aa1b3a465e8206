"""A shard comes back from its snapshot and its log to the same bits, whatever happened to the files."""

from __future__ import annotations

import errno
import math
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from minga.errors import ProtocolError
from minga.model.replica import Replica
from minga.strategies.parameter_server.disk_log import DiskUpdateLog, SnapshotRule
from minga.strategies.parameter_server.files import ShardFiles, read_record, write_record
from minga.strategies.parameter_server.shard import Push, Shard, Update
from minga.strategies.parameter_server.update_log import Period

PERIOD = Period(1, 0, {"epoch": 0, "offset": 0, "samples": 10, "owed": []}, ("a", "b"))
OPTIMIZERS: list[Callable[..., torch.optim.Optimizer]] = [
    lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01),
    lambda parameters: torch.optim.AdamW(parameters, lr=0.01),
]


def make_shard(optimizer: int = 0) -> Shard:
    torch.manual_seed(0)
    model = nn.Linear(7, 5)
    replica = Replica(model, OPTIMIZERS[optimizer](model.parameters()))
    return Shard(replica, slice(3, 31))


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


def put_in(update_log: DiskUpdateLog, shard: Shard, pushed: list[Update]) -> None:
    for update in pushed:
        update_log.append(shard, update)
        if shard.apply(update):
            update_log.applied()
        update_log.tidy_up(shard)


def bits(shard: Shard) -> list[Tensor]:
    state = [tensor for piece in shard.optimizer_state() for tensor in piece.tensors()]
    return [shard.parameters.clone(), *(tensor.clone() for tensor in state)]


def equal(one: list[Tensor], other: list[Tensor]) -> bool:
    return len(one) == len(other) and all(torch.equal(*pair) for pair in zip(one, other, strict=True))


def left_by_a_kill(folder: Path) -> Path:
    """The files as they are while the server still has them open; closing them would tidy them up."""
    copy = folder.with_name(f"{folder.name} of a killed server")
    shutil.copytree(folder, copy)
    return copy


@pytest.mark.parametrize("optimizer", [0, 1])
@pytest.mark.parametrize("every", [1000, 3])
def test_a_killed_server_comes_back_to_the_same_bits(tmp_path: Path, optimizer: int, every: int) -> None:
    shard, update_log = make_shard(optimizer), DiskUpdateLog(tmp_path / "s", SnapshotRule(updates=every))
    update_log.begin(shard, PERIOD)
    put_in(update_log, shard, updates(17))
    left = left_by_a_kill(tmp_path / "s")
    again, new = make_shard(optimizer), DiskUpdateLog(left)
    update_log.close()
    assert new.holds
    assert new.restore(again)
    assert equal(bits(again), bits(shard))
    assert (new.version, new.period, new.book.entries) == (update_log.version, PERIOD, update_log.book.entries)
    # ... and goes on from there, also through a second death.
    for each, theirs in ((shard, update_log), (again, new)):
        if theirs is new:
            new.begin(again, PERIOD)
            put_in(new, again, updates(5, seed=1))
        else:
            for update in updates(5, seed=1):
                each.apply(update)
    assert equal(bits(again), bits(shard))
    third, last = make_shard(optimizer), DiskUpdateLog(left_by_a_kill(left))
    new.close()
    assert last.restore(third)
    assert equal(bits(third), bits(shard))


def test_a_torn_record_is_left_out(tmp_path: Path) -> None:
    shard, update_log = make_shard(), DiskUpdateLog(tmp_path)
    update_log.begin(shard, PERIOD)
    *before, last = updates(6)
    put_in(update_log, shard, before)
    wanted = bits(shard)
    put_in(update_log, shard, [last])
    update_log.close()
    log = tmp_path / "log-000001"
    for cut in (1, 40, 200):
        log.write_bytes(log.read_bytes()[:-cut])
        again = make_shard()
        assert DiskUpdateLog(tmp_path).restore(again)
        assert equal(bits(again), wanted)


def test_a_file_that_is_written_over_has_nothing_of_its_last_turn(tmp_path: Path) -> None:
    shard, update_log = make_shard(), DiskUpdateLog(tmp_path / "s", SnapshotRule(updates=8))
    update_log.begin(shard, PERIOD)
    # All of one size, so that where the new ones end an old one begins.
    pushed = [Update((Push("a", n, n, 1.0),), (0.1,), (torch.ones(28) * n,), together=True) for n in range(10, 40)]
    inodes = []
    for update in pushed:
        put_in(update_log, shard, [update])
        log = max((tmp_path / "s").glob("log-*"))
        inodes.append(log.stat().st_ino)
        again = make_shard()
        assert DiskUpdateLog(tmp_path / "s").restore(again)
        assert equal(bits(again), bits(shard))
    assert len(set(inodes)) == 2  # files are used again
    assert log.stat().st_size > update_log._files.log_bytes  # there is something of its last turn
    # A record that is written over another, but not all of it when the process is killed.
    content = bytearray(log.read_bytes())
    before, after = bits(shard), update_log._files.log_bytes
    put_in(update_log, shard, [Update((Push("a", 40, 40, 1.0),), (0.1,), (torch.ones(28) * 40,), together=True)])
    assert max((tmp_path / "s").glob("log-*")) == log
    whole = log.read_bytes()
    for written in range(after + 1, update_log._files.log_bytes, 7):
        log.write_bytes(whole[:written] + content[written:])
        again = make_shard()
        assert DiskUpdateLog(tmp_path / "s").restore(again)
        assert equal(bits(again), before)
    update_log.close()


def test_a_log_that_others_follow_ends_where_its_last_turn_did_not(tmp_path: Path) -> None:
    def vector(step: int) -> Tensor:
        return torch.full((28,), float(step))

    shard, update_log = make_shard(), DiskUpdateLog(tmp_path, SnapshotRule(updates=3))
    update_log.begin(shard, PERIOD)
    pushed = []
    for step in range(1, 10):
        both = (Push("a", step, step, 0.5), Push("b", step, step, 0.5))
        short = step in (7, 8)  # the third log is written over the first, which was longer
        gradients = (vector(step),) if short else (vector(step), vector(-step))
        pushed.append(Update(both, (0.1,), gradients, together=short))
    pushed.append(Update((Push("a", 10, 10, 0.5),), (0.1,), (vector(10),), together=True))
    put_in(update_log, shard, pushed)
    assert ShardFiles(tmp_path).numbers() == [3, 4]
    assert update_log.undo(shard, {("b", 9)})  # from the third snapshot on
    expected = make_shard()
    for update in pushed:
        kept = update.without({("b", 9)})
        assert kept is not None
        expected.apply(kept)
    assert equal(bits(shard), bits(expected))
    update_log.close()


@pytest.mark.parametrize("size", [3, 4096, 3 * 4096 + 5])
def test_a_record_with_a_page_of_another_time_is_noticed(tmp_path: Path, size: int) -> None:
    path, content = tmp_path / "records", bytes(range(251)) * (2 * size // 251 + 1)
    with path.open("wb", buffering=0) as file:
        length = write_record(file, 7, {"kind": "test"}, [content[:size], content[size : 2 * size]])
    written = path.read_bytes()
    assert len(written) == length
    with path.open("rb") as file:
        assert read_record(file, 7) == ({"kind": "test"}, content[: 2 * size])
        assert read_record(file, 7) is None
    for changed in range(0, length, max(1, length // 40)):
        path.write_bytes(written[:changed] + bytes([written[changed] ^ 64]) + written[changed + 1 :])
        with path.open("rb") as file, pytest.raises(ProtocolError):
            read_record(file, 7)
    path.write_bytes(written)
    with path.open("rb") as file, pytest.raises(ProtocolError, match="of turn 7, not of 8"):
        read_record(file, 8)


def test_a_changed_byte_is_noticed(tmp_path: Path) -> None:
    shard, update_log = make_shard(), DiskUpdateLog(tmp_path)
    update_log.begin(shard, PERIOD)
    beginning = bits(shard)
    put_in(update_log, shard, updates(3))
    update_log.close()
    log = tmp_path / "log-000001"
    content = bytearray(log.read_bytes())
    content[400] ^= 1
    log.write_bytes(content)
    again = make_shard()
    assert DiskUpdateLog(tmp_path).restore(again)
    assert equal(bits(again), beginning)
    snapshot = tmp_path / "snapshot-000001"
    content = bytearray(snapshot.read_bytes())
    content[-1] ^= 1
    snapshot.write_bytes(content)
    assert not DiskUpdateLog(tmp_path).restore(make_shard())


@pytest.mark.parametrize("every", [1000, 2])
def test_undoing_is_as_if_it_had_never_come(tmp_path: Path, every: int) -> None:
    pushed = updates(14)
    shard, update_log = make_shard(), DiskUpdateLog(tmp_path, SnapshotRule(updates=every))
    update_log.begin(shard, PERIOD)
    put_in(update_log, shard, pushed)
    undone = {("a", 14)}
    assert update_log.undo(shard, undone)
    expected = make_shard()
    for update in pushed:
        kept = update.without(undone)
        if kept is not None:
            expected.apply(kept)
    assert equal(bits(shard), bits(expected))
    assert (update_log.book.last("a"), update_log.book.last("b")) == (13, 14)
    # It stays undone for who is killed later, and numbers go on.
    update_log.begin(shard, Period(2, 14, PERIOD.order, ("b",)))
    more = [Update((Push("b", 15, 15, 1.0),), (0.1,), (torch.ones(28),), together=True)]
    put_in(update_log, shard, more)
    update_log.close()
    again, new = make_shard(), DiskUpdateLog(tmp_path)
    assert new.restore(again)
    assert equal(bits(again), bits(shard))
    assert (new.book.last("a"), new.book.last("b")) == (13, 15)
    assert new.period is not None and new.period.number == 2


def test_what_was_undone_is_in_no_snapshot_that_stays(tmp_path: Path) -> None:
    shard, update_log = make_shard(), DiskUpdateLog(tmp_path, SnapshotRule(updates=3))
    update_log.begin(shard, PERIOD)
    pushed = [Update((Push("a", n, n, 1.0),), (0.1,), (torch.ones(28) * n,), together=True) for n in range(1, 4)]
    put_in(update_log, shard, pushed)  # the third is in the second snapshot
    assert update_log.undo(shard, {("a", 3)})
    update_log.begin(shard, Period(2, 2, PERIOD.order, ("b",)))
    more = [Update((Push("b", n, n, 1.0),), (0.1,), (torch.ones(28),), together=True) for n in range(1, 3)]
    put_in(update_log, shard, more)
    update_log.close()
    again = make_shard()
    assert DiskUpdateLog(tmp_path).restore(again)
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
    update_log = DiskUpdateLog(tmp_path, SnapshotRule(updates=10, seconds=5.0), clock=lambda: now)
    update_log.begin(shard, PERIOD)
    one = [Update((Push("a", n, n, 1.0),), (0.1,), (torch.ones(28),), together=True) for n in range(1, 60)]
    put_in(update_log, shard, one[:10])  # the tenth makes a snapshot
    # The tenth is in the snapshot, and its worker has not been heard of since: what is older must stay.
    put_in(update_log, shard, [Update((Push("b", 1, 1, 1.0),), (0.1,), (torch.ones(28),), together=True)])
    assert ShardFiles(tmp_path).numbers() == [1, 2]
    put_in(update_log, shard, one[10:11])
    assert ShardFiles(tmp_path).numbers() == [2]
    assert not (tmp_path / "log-000001").exists()
    now = 6.0  # also by time
    put_in(update_log, shard, one[11:12])
    put_in(update_log, shard, one[12:13])
    assert ShardFiles(tmp_path).numbers() == [2, 3]  # one has pushed since, the other has not
    put_in(update_log, shard, [Update((Push("b", 2, 2, 1.0),), (0.1,), (torch.ones(28),), together=True)])
    assert ShardFiles(tmp_path).numbers() == [3]
    assert update_log.costs()["snapshots"] == 2
    update_log.close(finished=True)
    assert not tmp_path.exists()


def test_what_a_slow_worker_has_pushed_stays_undoable_for_a_while(tmp_path: Path) -> None:
    rule = SnapshotRule(log_bytes=4000, log_factor=0.0)
    shard, update_log = make_shard(), DiskUpdateLog(tmp_path, rule)
    update_log.begin(shard, PERIOD)
    slow = Update((Push("b", 1, 1, 1.0),), (0.1,), (torch.ones(28),), together=True)
    quick = [Update((Push("a", n, n, 1.0),), (0.1,), (torch.ones(28) * n,), together=True) for n in range(1, 130)]
    put_in(update_log, shard, [slow, *quick[:40]])
    assert ShardFiles(tmp_path).numbers() == [1, 2]
    assert update_log.undo(shard, {("b", 1)})
    expected = make_shard()
    for update in quick[:40]:
        expected.apply(update)
    assert equal(bits(shard), bits(expected))
    update_log.begin(shard, PERIOD)
    put_in(update_log, shard, [slow, *quick[40:]])
    assert ShardFiles(tmp_path).numbers()[0] > 3  # but not for ever
    update_log.close()


def test_a_full_disk_does_not_end_the_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    shard, update_log = make_shard(), DiskUpdateLog(tmp_path / "s")
    update_log.begin(shard, PERIOD)
    put_in(update_log, shard, updates(3))

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("minga.strategies.parameter_server.files.write_record", full)
    put_in(update_log, shard, updates(5, seed=2))
    assert "No space left on device" in caplog.text
    assert caplog.text.count("can't keep its updates") == 1
    monkeypatch.undo()
    # What is there would be too old: nobody must take it for the truth.
    assert not DiskUpdateLog(tmp_path / "s").holds
    expected = make_shard()
    for update in [*updates(3), *updates(5, seed=2)]:
        expected.apply(update)
    assert equal(bits(shard), bits(expected))
    update_log.close()
