"""What the conformance kit does not say of gossip: what mixing alone does to the mean and to the spread."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor, nn

from minga import Cluster, Experiment, Training, Transport
from minga.base.config import FieldError
from minga.codecs import Codec, Half, Stream
from minga.comm.threads import run_threads
from minga.model.replica import Replica
from minga.strategies import Gossip, Strategy
from minga.strategies.gossip_graphs import Graph, Neighbours, mixing_round, partners, pushing_round
from minga.testing import train_in_threads
from minga.testing.problems import blobs
from minga.testing.strategies import train_alone

SIZES = [2, 3, 4, 5, 8]
GRAPHS: list[Graph] = ["ring", "exponential", "random"]
LENGTH = 40


@dataclass(frozen=True, kw_only=True)
class LargestTenth(Codec):
    """Only the tenth of the elements that are largest, zeros for the rest: as lossy as codecs get."""

    faithful: ClassVar[bool] = False

    def compress(self, vector: Tensor, stream: Stream) -> Tensor:
        kept = vector.abs().topk(max(1, len(vector) // 10)).indices
        return torch.zeros_like(vector).index_copy_(0, kept, vector[kept])

    def decompress(self, encoded: Tensor, into: Tensor, stream: Stream) -> None:
        into.copy_(encoded)

    def encoded_like(self, vector: Tensor, stream: Stream) -> Tensor:
        return torch.empty_like(vector)


@dataclass(frozen=True, kw_only=True)
class CorrectsMomentum(Half):
    """As a codec that accumulates momentum."""

    corrects_momentum: ClassVar[bool] = True  # type: ignore[assignment]


def beginnings(size: int) -> Tensor:
    """What each rank starts with: rows of very different vectors."""
    return torch.randn(size, LENGTH, generator=torch.Generator().manual_seed(size), dtype=torch.float64) * 3 + 1


def mix(strategy: Strategy, size: int, rounds: int, *, finish: bool = False, hosts: Sequence[str] | None = None) -> Any:
    """Parameters of all ranks after each round, when nobody learns anything: (rounds + 1) x ranks x length."""
    starts = beginnings(size)

    def body(comm: Transport) -> Tensor:
        model = nn.Linear(LENGTH, 1, bias=False).double()
        replica = Replica(model, torch.optim.SGD(model.parameters(), lr=0.0))
        replica.rank = comm.rank
        with torch.no_grad():
            replica.parameters.zero_()  # the same seed of chance in every test
        strategy.start(replica, comm)
        replica.parameters.copy_(starts[comm.rank])
        seen = [replica.parameters.clone()]
        for _ in range(rounds):
            replica.step += 1
            strategy.step(replica, comm)
            seen.append(replica.parameters.clone())
        if finish:
            strategy.finish(replica, comm)
            seen.append(replica.parameters.clone())
        return torch.stack(seen)

    return torch.stack(run_threads(size, body, timeout_seconds=20, hosts=hosts)).transpose(0, 1)


def spreads(history: Tensor) -> list[float]:
    return [float((moment - moment.mean(0)).norm()) for moment in history]


def drift(history: Tensor) -> float:
    """How far the mean of all ranks has gone from where it was at the start."""
    return float((history.mean(1) - history[0].mean(0)).abs().max())


def matrix(size: int, part: Callable[[int], Neighbours]) -> Tensor:
    """The mixing matrix of a round, row by row from what each rank thinks its part is."""
    made = torch.zeros(size, size, dtype=torch.float64)
    for rank in range(size):
        senders = part(rank).senders
        made[rank, [rank, *senders]] = 1 / (1 + len(senders))
    return made


# --- graphs -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, *SIZES, 7, 16])
@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("rounds", [mixing_round, pushing_round])
def test_whoever_sends_is_waited_for(graph: Graph, size: int, rounds: Callable[..., Neighbours]) -> None:
    for number in range(12):
        parts = [rounds(graph, rank=rank, size=size, number=number, seed=3) for rank in range(size)]
        sent = {(rank, to) for rank, part in enumerate(parts) for to in part.receivers}
        awaited = {(sender, rank) for rank, part in enumerate(parts) for sender in part.senders}
        assert sent == awaited
        assert all(sender != receiver for sender, receiver in sent)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("graph", GRAPHS)
def test_rows_and_columns_of_mixing_add_up_to_one(graph: Graph, size: int) -> None:
    for number in range(12):
        made = matrix(
            size, lambda rank, number=number: mixing_round(graph, rank=rank, size=size, number=number, seed=3)
        )
        torch.testing.assert_close(made.sum(0), torch.ones(size, dtype=torch.float64))
        torch.testing.assert_close(made.sum(1), torch.ones(size, dtype=torch.float64))


@pytest.mark.parametrize("size", [1, *SIZES, 7, 16, 33])
@pytest.mark.parametrize("graph", GRAPHS)
def test_pairs_are_of_one_who_asks_and_one_who_answers_and_connect_everybody(graph: Graph, size: int) -> None:
    near = {rank: partners(graph, rank=rank, size=size) for rank in range(size)}
    for rank, others in near.items():
        assert all((other + rank) % 2 == 1 and rank in near[other] for other in others)
    reached, edge = {0}, [0]
    while edge:
        new = set(near[edge.pop()]) - reached
        reached |= new
        edge += new
    assert reached == set(range(size))


def test_random_rounds_differ_from_each_other_and_from_seed_to_seed() -> None:
    def pairs(seed: int) -> list[Neighbours]:
        return [mixing_round("random", rank=0, size=8, number=number, seed=seed) for number in range(20)]

    assert len(set(pairs(1))) > 3
    assert pairs(1) != pairs(2)


# --- mixing alone -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("graph", GRAPHS)
def test_mixing_keeps_the_mean_and_brings_replicas_together(graph: Graph, overlap: bool, size: int) -> None:
    history = mix(Gossip(graph=graph, overlap=overlap), size, rounds=200)
    assert drift(history) < 1e-12
    apart = spreads(history)
    assert all(later <= earlier * (1 + 1e-9) + 1e-12 for earlier, later in itertools.pairwise(apart))
    assert apart[-1] < 1e-6 * apart[0]


@pytest.mark.parametrize("size", SIZES)
def test_a_ring_contracts_as_its_spectral_gap_says(size: int) -> None:
    """The second largest eigenvalue of the ring's matrix is (1 + 2 cos(2 pi / n)) / 3, by hand."""
    rate = 0.0 if size < 4 else (1 + 2 * math.cos(2 * math.pi / size)) / 3
    apart = spreads(mix(Gossip(graph="ring", overlap=False), size, rounds=20))
    for rounds in (1, 5, 20):
        assert apart[rounds] <= rate**rounds * apart[0] + 1e-12
    if rate:  # and not faster either, once the slowest part is what is left
        assert apart[20] / apart[15] == pytest.approx(rate**5, rel=0.05)


@pytest.mark.parametrize(("size", "rounds"), [(2, 1), (4, 2), (8, 3), (16, 4)])
def test_the_exponential_graph_is_done_after_log_n_rounds(size: int, rounds: int) -> None:
    apart = spreads(mix(Gossip(graph="exponential", overlap=False), size, rounds=rounds))
    assert apart[-2] > 0.1
    assert apart[-1] < 1e-12


def test_an_overlapping_round_arrives_one_round_later() -> None:
    plain = mix(Gossip(graph="ring", overlap=False), 5, rounds=10)
    hidden = mix(Gossip(graph="ring", overlap=True), 5, rounds=11)
    torch.testing.assert_close(hidden[2:], plain[1:11], rtol=0, atol=1e-12)
    assert torch.equal(hidden[1], hidden[0])


def test_between_rounds_nothing_is_exchanged() -> None:
    apart = spreads(mix(Gossip(graph="ring", period=3, overlap=False), 5, rounds=6))
    assert apart[0] == apart[1] == apart[2] > apart[3] == apart[4] == apart[5] > apart[6]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("graph", GRAPHS)
def test_rounded_parameters_leave_the_mean_alone(graph: Graph, size: int) -> None:
    history = mix(Gossip(graph=graph, codec=Half()), size, rounds=200)
    assert drift(history) < 1e-12
    assert spreads(history)[-1] < 5e-3 * spreads(history)[0]


@pytest.mark.parametrize("size", SIZES)
def test_public_copies_agree_although_nine_tenths_are_left_out(size: int) -> None:
    history = mix(Gossip(graph="ring", codec=LargestTenth()), size, rounds=400)
    assert drift(history) < 1e-12
    assert spreads(history)[-1] < 1e-2 * spreads(history)[0]


def test_without_copies_the_same_codec_does_not_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LargestTenth, "faithful", True)
    history = mix(Gossip(graph="exponential", codec=LargestTenth()), 4, rounds=400)
    assert spreads(history)[-1] > 0.1 * spreads(history)[0]


def test_too_long_a_consensus_step_runs_away() -> None:
    apart = spreads(mix(Gossip(graph="ring", codec=LargestTenth(), consensus_step=1.0), 8, rounds=400))
    assert apart[-1] > apart[0]


# --- push-sum -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("graph", GRAPHS)
def test_push_sum_reaches_the_mean(graph: Graph, overlap: bool, size: int) -> None:
    history = mix(Gossip(algorithm="push_sum", graph=graph, overlap=overlap), size, rounds=330)
    assert float((history[-1] - history[0].mean(0)).abs().max()) < 1e-9


def irregular(_graph: Graph, seed: int, rank: int, size: int, number: int) -> Neighbours:
    """Everybody sends to rank 0, and rank 0 to rank 1, which sends to all: very unequal."""
    edges = {rank: {0} - {rank} for rank in range(size)}
    edges[0], edges[1] = {1}, set(range(size)) - {1}
    senders = tuple(sender for sender in range(size) if rank in edges[sender])
    return Neighbours(tuple(sorted(edges[rank])), senders)


def test_push_sum_is_right_on_an_irregular_graph_and_plain_averaging_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("minga.strategies.gossip.pushing_round", irregular)
    monkeypatch.setattr("minga.strategies.gossip.mixing_round", irregular)
    pushed = mix(Gossip(algorithm="push_sum"), 5, rounds=100)
    averaged = mix(Gossip(algorithm="dpsgd"), 5, rounds=100)
    truth = pushed[0].mean(0)
    assert float((pushed[-1] - truth).abs().max()) < 1e-9
    assert spreads(averaged)[-1] < 1e-6  # they agree, but on something else
    assert float((averaged[-1] - truth).abs().max()) > 0.1


def test_what_push_sum_ends_with_is_the_mean_also_before_everybody_agrees() -> None:
    history = mix(Gossip(algorithm="push_sum", graph="random", codec=Half()), 5, rounds=3, finish=True)
    assert spreads(history)[-2] > 0.1
    assert float((history[-1] - history[0].mean(0)).abs().max()) < 1e-12


# --- learning -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "strategy",
    [
        "gossip:graph=ring,overlap=false",
        "gossip:graph=exponential,period=2",
        "gossip:graph=ring,codec=half",
        "gossip:algorithm=push_sum,graph=random",
        "gossip:algorithm=push_sum,graph=random,period=2,overlap=false",
        "gossip:algorithm=asynchronous",
        "gossip:algorithm=asynchronous,graph=ring,codec=half",
    ],
)
@pytest.mark.parametrize("nodes", [2, 3, 5])
def test_every_gradient_counts_the_same(strategy: str, nodes: int) -> None:
    """The gradient of rank r is r + 1 in every step and the learning rate 1: the mean moves by its mean a step."""

    def body(comm: Transport) -> float:
        model = nn.Linear(1, 1, bias=False).double()
        replica = Replica(model, torch.optim.SGD(model.parameters(), lr=1.0))
        made = Strategy.from_value(strategy)
        with torch.no_grad():
            replica.parameters.fill_(100.0)
        replica.progress.begin(0, comm.size)
        made.start(replica, comm)
        for _ in range(10):
            replica.step += 1
            replica.gradients.fill_(comm.rank + 1)
            made.step(replica, comm)
        made.finish(replica, comm)
        return float(replica.parameters)

    expected = 100 - 10 * (nodes + 1) / 2
    assert run_threads(nodes, body) == pytest.approx([expected] * nodes, abs=1e-9)


def test_two_that_average_in_every_step_are_one_with_twice_the_batch() -> None:
    experiment = Experiment(
        workload="blobs",
        strategy="gossip:graph=ring,overlap=false",
        cluster=Cluster(nodes=2),
        training=Training(steps=60, batch=8),
    )
    together = train_in_threads(experiment, blobs())[0].parameters
    assert float((together - train_alone(blobs(), steps=60, batch=16).parameters).abs().max()) < 1e-12


# --- what can't be ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"period": 0}, "period: should be at least 1, not 0"),
        ({"algorithm": "dpsg"}, "algorithm: .*'dpsgd', 'push_sum' or 'asynchronous'"),
        ({"algorithm": "asynchronous", "overlap": False}, "overlap: false is for dpsgd and push_sum"),
        ({"consensus_step": 0.5}, "consensus_step: is for algorithm=dpsgd, graph=ring with a lossy codec"),
        ({"graph": "ring", "codec": Half(), "consensus_step": 1.5}, "consensus_step: should be above 0 and at most 1"),
        ({"graph": "random", "codec": LargestTenth()}, "codec: .*LargestTenth leaves too much out .*graph=random"),
        ({"algorithm": "push_sum", "codec": LargestTenth()}, "codec: .*algorithm=push_sum, .*works with .*graph=ring"),
        ({"graph": "ring", "codec": CorrectsMomentum()}, "codec: .* corrects momentum .*leave momentum_correction out"),
    ],
)
def test_impossible_settings(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(FieldError, match=message):
        Gossip(**fields)


def test_only_asynchronous_gossip_leaves_lockstep() -> None:
    assert Gossip().traits.lockstep and Gossip(algorithm="push_sum").traits.lockstep
    assert not Gossip(algorithm="asynchronous").traits.lockstep
