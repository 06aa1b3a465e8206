"""Streams: every sample once per epoch without knowing the end, any stretch again, and what a stream must keep to."""

from __future__ import annotations

import dataclasses
import itertools
import random
from collections.abc import Iterator

import pytest
import torch
from torch.utils.data import IterableDataset

from helpers.streams import streamed_blobs
from minga.comm.threads import run_threads
from minga.data.batches import length, part_of
from minga.data.fingerprint import fingerprint
from minga.data.order import Order, Stretch, left_out
from minga.data.stream import StreamedOrder, StreamReader, is_stream
from minga.errors import WorkloadError
from minga.runs.experiment import Experiment, Training
from minga.testing.problems import blobs
from minga.training.train_state import build_train_state


class Numbers(IterableDataset[int]):
    """The numbers below `samples`, in another order in each epoch; counts what is read."""

    def __init__(self, samples: int) -> None:
        self.samples = samples
        self.epoch = 0
        self.read = 0
        self.begun = 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def in_epoch(self, epoch: int) -> list[int]:
        return random.Random(epoch).sample(range(self.samples), self.samples)

    def __iter__(self) -> Iterator[int]:
        self.begun += 1
        for number in self.in_epoch(self.epoch):
            self.read += 1
            yield number


class Measured(Numbers):
    def __len__(self) -> int:
        return self.samples


class Skipping(Numbers):
    def __init__(self, samples: int, first: int = 0) -> None:
        super().__init__(samples)
        self.first = first

    def skip(self, samples: int) -> Skipping:
        return Skipping(self.samples, samples)  # it does not know of an epoch, as Hugging Face's don't

    def in_epoch(self, epoch: int) -> list[int]:
        return super().in_epoch(epoch)[self.first :]


# --- reading -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [Numbers, Measured, Skipping])
def test_any_stretch_of_any_epoch_at_any_time(kind: type[Numbers]) -> None:
    chance, stream = random.Random(1), kind(50)
    reader = StreamReader(stream)
    for _ in range(200):
        epoch, start = chance.randrange(3), chance.randrange(50)
        stretch = Stretch(epoch, start, chance.randint(start + 1, 50))
        assert reader.read(stretch) == Numbers(50).in_epoch(epoch)[stretch.start : stretch.stop]


def test_stretches_one_after_the_other_are_read_once() -> None:
    stream = Numbers(50)
    reader = StreamReader(stream)
    for start in range(0, 50, 10):
        reader.read(Stretch(0, start + 2, start + 6))
    assert (stream.begun, stream.read) == (1, 46)


def test_what_was_passed_is_read_again_without_losing_the_place() -> None:
    stream = Numbers(100)
    reader = StreamReader(stream)
    reader.read(Stretch(0, 0, 90))
    assert reader.read(Stretch(0, 3, 5)) == stream.in_epoch(0)[3:5]
    assert reader.read(Stretch(0, 7, 8)) == stream.in_epoch(0)[7:8]
    assert reader.read(Stretch(0, 90, 100)) == stream.in_epoch(0)[90:]
    assert stream.begun == 2


def test_where_it_can_skip_what_lies_before_is_not_read() -> None:
    stream = Skipping(1000)
    assert StreamReader(stream).read(Stretch(2, 990, 992)) == Numbers(1000).in_epoch(2)[990:992]
    assert stream.read == 0  # another one was, from there on


def test_going_on_in_the_middle_reads_no_more_than_a_batch_ahead() -> None:
    """Also where nobody knows the length: what lies before is skipped, or read and dropped."""
    for stream in (Skipping(100_000), Numbers(100_000)):
        reader = StreamReader(stream)
        assert reader.reaches(1, 90_000, 90_009) == 90_009
        assert len(reader._places[-1]._ahead) <= 10
        assert reader.read(Stretch(1, 90_000, 90_002)) == Numbers(100_000).in_epoch(1)[90_000:90_002]
        assert stream.begun == (0 if isinstance(stream, Skipping) else 1)


def test_a_stream_that_has_become_shorter_is_told_where_a_run_goes_on() -> None:
    for kind in (Numbers, Skipping):
        order = StreamedOrder(StreamReader(kind(50)))
        order.go_to({"epoch": 0, "offset": 100, "samples": None, "owed": []})
        with pytest.raises(WorkloadError, match="has ended before sample 101 of epoch 1, which a run"):
            order.take(0, 1, 4)


def test_looking_at_a_position_changes_nothing() -> None:
    order = StreamedOrder(StreamReader(Numbers(50)))
    order.copy().go_to({"epoch": 0, "offset": 0, "samples": 7, "owed": []})
    assert order.samples is None
    with pytest.raises(ValueError, match="can't be 0 samples"):
        order.go_to({"epoch": 0, "offset": 0, "samples": 0, "owed": []})


def test_the_end_is_found_by_looking_ahead_and_nothing_is_lost() -> None:
    stream = Numbers(10)
    reader = StreamReader(stream)
    assert (reader.reaches(0, 0, 4), reader.samples, stream.read) == (4, None, 4)
    assert (reader.reaches(0, 2, 11), reader.samples) == (10, 10)
    assert reader.read(Stretch(0, 2, 10)) == stream.in_epoch(0)[2:]
    assert stream.begun == 1


# --- the order ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [Numbers, Measured])
@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("seed", range(20))
def test_it_is_cut_like_data_with_a_length(kind: type[Numbers], drop_last: bool, seed: int) -> None:
    chance = random.Random(seed)
    samples, batch = chance.randint(1, 40), chance.randint(1, 12)
    known = Order(samples, 0, drop_last=drop_last)
    streamed = StreamedOrder(StreamReader(kind(samples)), drop_last=drop_last)
    for _ in range(30):
        assert streamed.advance(batch) == known.advance(batch)
        assert (streamed.epoch, streamed.offset) == (known.epoch, known.offset)


@pytest.mark.parametrize("kind", [Numbers, Measured, Skipping])
@pytest.mark.parametrize("seed", range(20))
def test_groups_come_and_go_and_every_sample_counts_once(kind: type[Numbers], seed: int) -> None:
    """As in a run: each worker has its own reader, part of a group's steps are lost, and new ones have read nothing."""
    chance = random.Random(seed)
    samples, batch, epochs = chance.randint(1, 60), chance.randint(1, 12), 2
    counted: list[int] = []
    position = StreamedOrder(StreamReader(kind(samples))).position()
    orders: list[StreamedOrder] = []
    order = None
    while order is None or order.progress < epochs:
        workers = chance.randint(1, 5)
        orders = orders[:workers] + [StreamedOrder(StreamReader(kind(samples))) for _ in range(workers - len(orders))]
        for each in orders:
            each.go_to(position)
        start, steps = orders[0].copy(), chance.randint(1, 8)
        included = [chance.randint(0, steps) for _ in range(workers)]
        for step in range(1, steps + 1):
            for rank, each in enumerate(orders):
                numbers = each.read(each.take(rank, workers, batch))
                counted += numbers if step <= included[rank] else []
        order = StreamedOrder(StreamReader(kind(samples)))
        order.go_to(start.position())
        owed = left_out(order, workers=workers, batch=batch, total=None, steps=range(1, steps + 1), included=included)
        order.owed = owed + order.owed
        position = order.position()
    missing = [number for stretch in order.owed for number in StreamReader(kind(samples)).read(stretch)]
    begun = Numbers(samples).in_epoch(order.epoch)[: order.offset]
    assert sorted([*counted, *missing]) == sorted([*list(range(samples)) * order.epoch, *begun])


def test_progress_counts_whole_epochs_until_the_length_is_known() -> None:
    order = StreamedOrder(StreamReader(Numbers(10)))
    found = []
    for _ in range(5):
        order.take(0, 1, 4)
        found.append(order.progress)
    assert found == [0.0, 0.0, 1.0, 1.4, 1.8]


# --- in training -------------------------------------------------------------------------------------------------


def test_evaluation_looks_at_each_sample_once_whatever_the_number_of_ranks() -> None:
    for samples, ranks in ((600, 1), (600, 3), (1500, 2), (5, 3)):
        dataset = Measured(samples)
        seen = [
            int(number)
            for rank in range(ranks)
            for batch in part_of(dataset, rank, ranks, 256, torch.device("cpu"))
            for number in batch
        ]
        assert sorted(seen) == list(range(samples))


def test_evaluation_on_a_stream_finds_the_same() -> None:
    experiment = Experiment(workload="blobs")
    found = [
        run_threads(ranks, build_train_state(experiment, workload, 0).evaluate)[0].numbers
        for workload, ranks in ((blobs(), 1), (streamed_blobs(), 1), (streamed_blobs(), 3))
    ]
    assert found[1] == pytest.approx(found[0], rel=1e-6)
    assert found[2] == pytest.approx(found[0], rel=1e-6)


def test_a_length_is_an_epoch_also_where_the_stream_never_ends() -> None:
    class Endless(Numbers):
        def __len__(self) -> int:
            return 100

        def __iter__(self) -> Iterator[int]:
            return itertools.count()

    assert len(list(part_of(Endless(0), 0, 1, 10, torch.device("cpu")))) == 10
    order = StreamedOrder(StreamReader(Endless(0)))
    assert [order.read(order.take(0, 1, 60))[0] for _ in range(3)] == [0, 60, 0]


def test_a_schedule_needs_to_know_how_far_training_has_come() -> None:
    workload = dataclasses.replace(streamed_blobs(), schedule=lambda progress: 1 - progress)
    with pytest.raises(WorkloadError, match="give the stream a __len__, or train with --steps"):
        build_train_state(Experiment(workload="blobs"), workload, 0)
    build_train_state(Experiment(workload="blobs", training=Training(steps=9)), workload, 0)


# --- what a stream must keep to ----------------------------------------------------------------------------------


class Shrinking(Numbers):
    def in_epoch(self, epoch: int) -> list[int]:
        return list(range(self.samples - epoch))


class Boasting(Numbers):
    def __len__(self) -> int:
        return self.samples + 5


@pytest.mark.parametrize("kind", [Shrinking, Boasting])
def test_one_that_is_shorter_than_it_was_or_said_is_told(kind: type[Numbers]) -> None:
    order = StreamedOrder(StreamReader(kind(10)))
    with pytest.raises(WorkloadError, match=r"has ended after (9|10) samples of epoch [12], but an epoch has 1[05]"):
        for _ in range(4):
            order.read(order.take(0, 1, 5))


def test_what_can_be_read_only_once_is_refused() -> None:
    with pytest.raises(WorkloadError, match="a generator, which can be read only once; give an object whose __iter__"):
        StreamReader(number for number in range(3))  # type: ignore[arg-type]


def test_an_empty_one_is_refused() -> None:
    with pytest.raises(WorkloadError, match="the stream of samples is empty"):
        StreamedOrder(StreamReader(Numbers(0))).take(0, 1, 4)
    with pytest.raises(WorkloadError, match="says that it has 0"):
        StreamReader(Measured(0))


def test_without_a_length_nothing_can_be_counted_in_advance() -> None:
    assert length(Measured(7)) == 7
    with pytest.raises(WorkloadError, match="a stream without a length, so steps can't be counted in advance"):
        length(Numbers(7))


def test_what_is_a_stream() -> None:
    assert is_stream(Numbers(3)) and not is_stream([1, 2])


def test_other_streams_have_other_fingerprints() -> None:
    assert fingerprint(Numbers(90)) == fingerprint(Numbers(90)) != fingerprint(Numbers(91))
    assert fingerprint(Numbers(90)).startswith("a stream, ")
    assert fingerprint(Measured(30)).startswith("a stream of 30 samples, ")
