"""Every sample once per epoch, whatever the number of workers, in an order that the seed decides."""

from __future__ import annotations

import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from minga.data.order import Blocks, Order, Share, Stretch, left_out

SAMPLES = st.integers(1, 60)
WORKERS = st.integers(1, 6)
BATCH = st.integers(1, 12)


def global_batch(orders: list[Order], workers: int, batch: int) -> list[Share]:
    """What each worker takes; the others, who don't train now, are told where the workers are."""
    shares = [order.take(rank, workers, batch) for rank, order in enumerate(orders[:workers])]
    for order in orders[workers:]:
        order.epoch, order.offset = orders[0].epoch, orders[0].offset
    assert {(order.epoch, order.offset) for order in orders} == {(orders[0].epoch, orders[0].offset)}
    return shares


def global_batches(
    samples: int, workers: list[int], batch: int, *, seed: int = 0, epochs: int = 1
) -> list[list[list[Share]]]:
    """For each epoch the global batches, which go through the numbers of workers in turn."""
    orders = [Order(samples, seed) for _ in range(max(workers))]
    taken: list[list[list[Share]]] = [[] for _ in range(epochs)]
    for turn in range(epochs * samples):  # a batch has a sample at least, so there are not more of them
        if orders[0].epoch == epochs:
            break
        taken[orders[0].epoch].append(global_batch(orders, workers[turn % len(workers)], batch))
    assert orders[0].epoch == epochs
    return taken


def in_turn(batches: list[list[Share]]) -> list[int]:
    """All samples of some global batches, from the first rank to the last."""
    return [index for shares in batches for share in shares for index in share.indices.tolist()]


def order_of(samples: int, *, seed: int = 0, epochs: int = 1) -> list[list[int]]:
    """The samples of each epoch, as one worker takes them."""
    return [in_turn(batches) for batches in global_batches(samples, [1], samples, seed=seed, epochs=epochs)]


# --- every sample once -------------------------------------------------------------------------------------------


@given(samples=SAMPLES, workers=WORKERS, batch=BATCH)
@settings(deadline=None)
def test_every_sample_is_taken_exactly_once_per_epoch(samples: int, workers: int, batch: int) -> None:
    for batches in global_batches(samples, [workers], batch, epochs=2):
        assert sorted(in_turn(batches)) == list(range(samples))


@given(samples=SAMPLES, workers=st.lists(WORKERS, min_size=2, max_size=5), batch=BATCH)
@settings(deadline=None)
def test_every_sample_is_taken_exactly_once_when_the_number_of_workers_changes_on_the_way(
    samples: int, workers: list[int], batch: int
) -> None:
    for batches in global_batches(samples, workers, batch, epochs=2):
        assert sorted(in_turn(batches)) == list(range(samples))


@given(samples=SAMPLES, workers=WORKERS, batch=BATCH, seed=st.integers(0, 1000))
@settings(deadline=None)
def test_workers_together_take_what_one_would_take(samples: int, workers: int, batch: int, seed: int) -> None:
    together = global_batches(samples, [workers], batch, seed=seed)[0]
    alone = global_batches(samples, [1], workers * batch, seed=seed)[0]
    assert [in_turn([shares]) for shares in together] == [in_turn([shares]) for shares in alone]


@given(samples=SAMPLES, workers=WORKERS, batch=BATCH)
@settings(deadline=None)
def test_all_batches_are_full_but_the_last(samples: int, workers: int, batch: int) -> None:
    *full, last = global_batches(samples, [workers], batch)[0]
    assert all(len(share.indices) == batch for shares in full for share in shares)
    assert 0 < sum(len(share.indices) for share in last) <= workers * batch


@given(samples=SAMPLES, workers=WORKERS, batch=BATCH)
@settings(deadline=None)
def test_a_short_batch_is_shared_as_evenly_as_it_can_be(samples: int, workers: int, batch: int) -> None:
    lengths = [len(share.indices) for share in global_batches(samples, [workers], batch)[0][-1]]
    assert max(lengths) - min(lengths) <= 1


# --- what a share counts -----------------------------------------------------------------------------------------


@given(samples=SAMPLES, workers=WORKERS, batch=BATCH)
@settings(deadline=None)
def test_weights_of_a_global_batch_add_up_to_the_number_of_workers(samples: int, workers: int, batch: int) -> None:
    for shares in global_batches(samples, [workers], batch)[0]:
        assert sum(share.weight for share in shares) == pytest.approx(workers)


@given(samples=SAMPLES, workers=WORKERS, batch=BATCH)
@settings(deadline=None)
def test_everybody_knows_the_samples_of_the_global_batch(samples: int, workers: int, batch: int) -> None:
    for shares in global_batches(samples, [workers], batch)[0]:
        assert {share.total for share in shares} == {sum(len(share.indices) for share in shares)}


@given(samples=SAMPLES, workers=WORKERS, batch=BATCH)
@settings(deadline=None)
def test_the_mean_of_weighted_means_is_the_mean_over_all_samples(samples: int, workers: int, batch: int) -> None:
    values = torch.arange(samples, dtype=torch.float64) ** 2
    for shares in global_batches(samples, [workers], batch)[0]:
        means = [share.weight * float(values[share.indices].mean()) for share in shares if len(share.indices)]
        assert sum(means) / workers == pytest.approx(float(values[in_turn([shares])].mean()))


def test_an_equal_share_weighs_one() -> None:
    assert [Order(100, 0).take(rank, 4, 8).weight for rank in range(4)] == [1.0] * 4


def test_a_worker_without_samples_weighs_nothing() -> None:
    shares = [Order(1, 0).take(rank, 2, 8) for rank in range(2)]
    assert [(len(share.indices), share.weight) for share in shares] == [(0, 0.0), (1, 2.0)]


# --- the order ---------------------------------------------------------------------------------------------------


@given(seed=st.integers(0, 1 << 32))
def test_the_same_seed_gives_the_same_order(seed: int) -> None:
    assert order_of(50, seed=seed, epochs=2) == order_of(50, seed=seed, epochs=2)


def test_every_seed_and_every_epoch_has_an_order_of_its_own() -> None:
    orders = [tuple(order) for seed in range(5) for order in order_of(50, seed=seed, epochs=5)]
    assert len(set(orders)) == 25


def test_the_order_does_not_depend_on_other_random_numbers() -> None:
    torch.manual_seed(1)
    one = order_of(50)
    torch.manual_seed(2)
    assert order_of(50) == one


def test_drawing_the_order_leaves_other_random_numbers_alone() -> None:
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    order_of(50)
    assert torch.equal(torch.rand(3), expected)


def test_a_run_goes_on_from_a_position() -> None:
    order = Order(50, 3)
    for _ in range(7):
        order.take(0, 2, 5)
    later = Order(50, 3)
    later.epoch, later.offset = order.epoch, order.offset
    assert torch.equal(later.take(1, 2, 5).indices, order.take(1, 2, 5).indices)


def test_without_shuffling_samples_come_as_they_are_in_every_epoch() -> None:
    order = Order(5, 0, shuffle=False)
    taken = [order.take(0, 1, 2).indices.tolist() for _ in range(4)]
    assert taken == [[0, 1], [2, 3], [4], [0, 1]]


def test_progress_counts_epochs_and_parts_of_them() -> None:
    order = Order(8, 0)
    progress = [order.progress]
    for _ in range(4):
        order.take(0, 1, 3)
        progress.append(order.progress)
    assert progress == [0.0, 0.375, 0.75, 1.0, 1.375]


def test_an_epoch_can_be_left_early() -> None:
    order = Order(8, 0)
    order.take(0, 1, 3)
    order.next_epoch()
    assert (order.epoch, order.offset) == (1, 0)
    assert order.take(0, 1, 8).indices.tolist() == order_of(8, epochs=2)[1]


# --- samples that were given out and are in no model --------------------------------------------------------------


@pytest.mark.parametrize("seed", range(60))
def test_what_is_owed_comes_next_and_every_sample_counts_once(seed: int) -> None:
    """Groups of workers come and go; of each group's steps only a part is in the model, differently for each worker."""
    chance = random.Random(seed)
    samples, batch, epochs = chance.randint(1, 60), chance.randint(1, 12), 2
    order = Order(samples, seed=1)
    counted: list[list[int]] = [[0] * samples for _ in range(epochs + 50)]
    while order.progress < epochs:
        workers = chance.randint(1, 6)
        start, steps = order.copy(), chance.randint(1, 8)
        included = [chance.randint(0, steps) for _ in range(workers)]
        taken = []
        for step in range(1, steps + 1):
            orders = [order.copy() for _ in range(workers)]
            shares = [each.take(rank, workers, batch) for rank, each in enumerate(orders)]
            assert len({(each.epoch, each.offset, len(each.owed)) for each in orders}) == 1
            before, order = order, orders[0]
            taken.append((before, shares))
            for rank, share in enumerate(shares):
                if step <= included[rank]:
                    for epoch, index in zip(
                        _epochs_of(before, rank, workers, batch), share.indices.tolist(), strict=True
                    ):
                        counted[epoch][index] += 1
        replayed = start.copy()
        owed = left_out(
            replayed, workers=workers, batch=batch, total=None, steps=range(1, steps + 1), included=included
        )
        assert (replayed.epoch, replayed.offset, replayed.owed) == (order.epoch, order.offset, order.owed)
        replayed.owed = owed + replayed.owed
        order = Order(samples, seed=1)
        order.go_to(replayed.position())
    whole = int(order.progress)
    assert all(count <= 1 for epoch in counted for count in epoch)
    missing = sum(len(stretch) for stretch in order.owed)
    done = sum(map(sum, counted))
    assert done == order.epoch * samples + order.offset - missing
    assert whole >= epochs


def _epochs_of(order: Order, rank: int, workers: int, batch: int) -> list[int]:
    """The epoch of each sample of a share."""
    stretches = order.copy().advance(workers * batch)
    epochs = [stretch.epoch for stretch in stretches for _ in range(len(stretch))]
    return epochs[len(epochs) * rank // workers : len(epochs) * (rank + 1) // workers]


def test_owed_samples_are_not_progress() -> None:
    order = Order(10, 0)
    order.take(0, 1, 10)
    order.owed = [Stretch(0, 2, 5)]
    assert order.progress == pytest.approx(0.7)
    assert sorted(order.take(0, 1, 8).indices.tolist()) == sorted(Order(10, 0).take(0, 1, 10).indices[2:5].tolist())
    assert (order.progress, order.given_out) == (1.0, 1.0)


@pytest.mark.parametrize(
    "position",
    [
        {"epoch": -1, "offset": 0, "samples": 10, "owed": []},
        {"epoch": 0, "offset": 11, "samples": 10, "owed": []},
        {"epoch": 0, "offset": 0, "samples": 9, "owed": []},
        {"epoch": 0, "offset": 0, "samples": 10, "owed": [[0, 5, 5]]},
        {"epoch": 0, "offset": 0, "samples": 10, "owed": [[0, 5, 11]]},
        {"epoch": 0, "offset": 0.5, "samples": 10, "owed": []},
    ],
)
def test_a_position_that_cannot_be_is_refused(position: dict[str, object]) -> None:
    with pytest.raises(ValueError):
        Order(10, 0).go_to(position)


# --- shuffled in blocks --------------------------------------------------------------------------------------------


BLOCKS = st.builds(Blocks, st.integers(1, 9), st.integers(1, 5))


@given(samples=SAMPLES, workers=st.lists(WORKERS, min_size=1, max_size=4), batch=BATCH, blocks=BLOCKS)
@settings(deadline=None)
def test_blocks_too_give_every_sample_once_whoever_takes_them(
    samples: int, workers: list[int], batch: int, blocks: Blocks
) -> None:
    order = Order(samples, 0, blocks=blocks)
    for epoch in range(2):
        taken: list[int] = []
        turn = 0
        while order.epoch == epoch:
            count = workers[turn % len(workers)]
            copies = [order.copy() for _ in range(count)]
            for rank, each in enumerate(copies):
                taken += each.take(rank, count, batch).indices.tolist()
            order, turn = copies[0], turn + 1
        assert sorted(taken) == list(range(samples))


def test_blocks_are_read_together() -> None:
    """Any window of the order has only the samples of as many blocks."""
    order = Order(10_000, 0, blocks=Blocks(100, 5))
    for _ in range(20):
        indices = order.take(0, 1, 500).indices
        assert len(indices) == 500 and len(set((indices // 100).tolist())) == 5


def test_blocks_mix_well() -> None:
    order = Order(10_000, 0, blocks=Blocks(50, 20))
    first = order.take(0, 1, 200).indices
    assert len(set((first // 50).tolist())) > 15  # of 20 blocks in the window
    steps = (first[1:] - first[:-1]).abs().float()
    assert steps.median() > 500


def test_a_run_in_blocks_goes_on_from_a_position() -> None:
    order, later = (Order(500, 3, blocks=Blocks(7, 4)) for _ in range(2))
    for _ in range(17):
        order.take(0, 2, 20)
    later.go_to(order.position())
    for _ in range(20):
        assert torch.equal(later.take(1, 2, 20).indices, order.take(1, 2, 20).indices)


def test_epochs_and_seeds_differ_in_blocks_too() -> None:
    orders = {tuple(order_in_blocks(seed, epoch)) for seed in range(3) for epoch in range(3)}
    assert len(orders) == 9


def order_in_blocks(seed: int, epoch: int) -> list[int]:
    order = Order(60, seed, blocks=Blocks(5, 3))
    order.epoch = epoch
    indices: list[int] = order.take(0, 1, 60).indices.tolist()
    return indices
