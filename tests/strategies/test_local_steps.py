"""Local SGD, DiLoCo and adaptive: when they exchange, that they don't wait, what they refuse."""

from __future__ import annotations

import time
from typing import Any

import pytest
import torch

from minga import Cluster, Experiment, Training
from minga.base.spec import describe, parse
from minga.codecs import Codec, Int4, Int8, Plain, PowerSGD, Sign, Stream
from minga.comm.threads import ThreadTransport, ThreadWorld, run_ranks
from minga.comm.traced import TracedTransport
from minga.comm.transport import Pending, Transport
from minga.errors import UsageError
from minga.measure.recorder import Recorder
from minga.model.replica import Replica
from minga.strategies import Adaptive, LocalSGD, Strategy
from minga.strategies.compression_levels import CompressionLevel, Conditions, choose, worth_measuring
from minga.testing import train_in_threads
from minga.testing.problems import blobs
from minga.training.loop import train
from minga.training.train_state import build_train_state


def sent_bytes(strategy: str, steps: int, nodes: int = 2) -> list[int]:
    """What each rank sends in a run on threads."""
    experiment = Experiment(
        workload="blobs", strategy=strategy, cluster=Cluster(nodes=nodes), training=Training(steps=steps)
    )
    train_states = [build_train_state(experiment, blobs(), rank) for rank in range(nodes)]
    world = ThreadWorld(nodes)

    def body(comm: Transport) -> int:
        recorder = Recorder(None)
        train(experiment, train_states[comm.rank], TracedTransport(comm, recorder.traffic), recorder)
        return recorder.traffic.bytes

    return run_ranks(nodes, world.transport, body, when_failed=world.fail)


def test_exchanges_come_every_period() -> None:
    # 66 parameters in float64; one more exchange at the end.
    size = 8 * train_in_threads(Experiment(workload="blobs", training=Training(steps=1)), blobs())[0].layout.length
    assert sent_bytes("local_sgd:period=5", 20) == [size * 5] * 2
    assert sent_bytes("local_sgd:period=5,overlap=3", 20) == [size * 5] * 2
    assert sent_bytes("local_sgd:period=5,post_local=10", 20) == [size * (10 + 2 + 1)] * 2
    assert sent_bytes("diloco:period=10", 20) == [size * 3] * 2
    assert sent_bytes("diloco:period=10,fragments=2,overlap=3", 20) == [size * 3] * 2


def test_periods_grow_and_shrink() -> None:
    growing = LocalSGD(period=2, growth=2.0, growth_steps=10, longest=12)
    assert [growing.period_at(step) for step in (0, 9, 10, 20, 30, 10**9)] == [2, 2, 4, 8, 12, 12]
    shrinking = LocalSGD(period=8, growth=0.5, growth_steps=10, post_local=5)
    assert [shrinking.period_at(step) for step in (0, 14, 15, 25, 35, 10**9)] == [8, 8, 4, 2, 1, 1]


class SlowWorld(ThreadWorld):
    """Threads whose background messages take a while, as on a slow network."""

    def __init__(self, size: int, seconds: float) -> None:
        super().__init__(size)
        self.seconds = seconds

    def transport(self, rank: int) -> ThreadTransport:
        return _Slow(self, rank)


class _Slow(ThreadTransport):
    def start(self, function: Any) -> Pending:
        seconds = self.world.seconds  # type: ignore[attr-defined]
        return super().start(lambda beside: (function(beside), time.sleep(seconds))[0])


def waiting(strategy: str, exchange_seconds: float) -> float:
    """Seconds that a rank waits for exchanges, at 20 ms of computing in each of 40 steps."""
    experiment = Experiment(
        workload="blobs", strategy=strategy, cluster=Cluster(nodes=2), training=Training(steps=40, evaluate_every=0)
    )
    train_states = [build_train_state(experiment, blobs(), rank) for rank in range(2)]
    world = SlowWorld(2, exchange_seconds)

    def body(transport: Transport) -> float:
        recorder = Recorder(None)
        spans = recorder.spans
        comm = TracedTransport(transport, recorder.traffic, waiting=lambda: spans.span("wait"))
        replica, chosen = train_states[comm.rank].replica, experiment.chosen_strategy
        replica.progress.begin(0, comm.size)
        chosen.start(replica, comm)
        spans.take()
        for _ in range(40):
            replica.step += 1
            time.sleep(0.02)
            replica.gradients.normal_()
            chosen.step(replica, comm)
        waited = spans.take().get("wait", 0.0)
        chosen.finish(replica, comm)
        return waited

    return run_ranks(2, world.transport, body, when_failed=world.fail)[0]


@pytest.mark.parametrize("strategy", ["local_sgd:period=8,overlap=8", "adaptive:budget=8"])
def test_an_exchange_of_80_percent_of_computing_is_hidden_behind_it(strategy: str) -> None:
    # The control is given less time than an exchange takes, and waits about 100 ms each time.
    control = waiting("local_sgd:period=8,overlap=1", 0.8 * 0.16)
    assert control > 4 * 0.08
    assert waiting(strategy, 0.8 * 0.16) < 0.2 * control


def usual_levels() -> list[CompressionLevel]:
    stream = Stream(((10,),))

    def level(codec: Codec, sent: int, hops: int, work: float, residual: float = 0.0) -> CompressionLevel:
        return CompressionLevel(
            codec, stream, stream, bytes=sent, hops=hops, work_seconds=work, slowdown=1.0, residual=residual
        )

    return [
        level(Plain(), 1_600_000, 1, 0.0005),
        level(Int8(), 400_000, 1, 0.001),
        level(Sign(), 64_000, 1, 0.001, residual=1.0),
        level(PowerSGD(rank=4), 60_000, 2, 0.001, residual=0.7),
        level(PowerSGD(rank=1), 15_000, 2, 0.0005, residual=2.0),
    ]


def on(megabits: float, *, step: float = 0.025, hop: float = 0.001, overhead: float = 0.05) -> Conditions:
    return Conditions(step, 8e-6 / megabits, hop, overhead, budget=2.0)


def test_adaptive_takes_the_form_that_brings_the_freshest_news() -> None:
    levels = usual_levels()

    def chosen(conditions: Conditions) -> int:
        return choose(levels, conditions)

    assert [chosen(on(megabits)) for megabits in (1000, 100, 20, 3)] == [3, 3, 4, 4]
    assert chosen(on(1000, step=1.0)) == 1, "where exchanges cost little, what leaves nothing out and costs least"
    assert chosen(on(0.01)) == 4, "none is quick enough: the quickest"
    assert chosen(on(100, hop=0.01)) == 2, "fewer hops where hops are what counts"
    levels[3].residual, levels[4].residual = 4.0, 9.0
    assert chosen(on(100)) == 2, "what leaves less out, though it is larger"
    assert levels[2].staleness(on(100)) < levels[3].staleness(on(100))
    levels[3].weight = 0.1
    assert chosen(on(100)) == 3, "what leaves much out that is not missed"


def test_exchanges_count_in_whole_steps() -> None:
    whole = usual_levels()[0]  # 1.6 MB
    # Exchanges may take all the time there is.
    quick, just_too_slow, slow = (on(megabits, overhead=1.0) for megabits in (2000, 500, 240))
    seconds = [whole.seconds(each) for each in (quick, just_too_slow, slow)]
    assert seconds == pytest.approx([0.3 * 0.025, 1.1 * 0.025, 2.2 * 0.025], rel=0.1)
    assert whole.staleness(quick) == 1, "one step is under way, and none waits"
    assert whole.staleness(just_too_slow) == 2.5, "two are under way, and every second time one waits"
    assert whole.staleness(slow) == 4
    whole.residual = 1.0
    assert whole.staleness(quick) == pytest.approx(2**0.5)


def test_adaptive_changes_the_form_only_for_a_clearly_better_one() -> None:
    levels = usual_levels()
    conditions = on(100)
    levels[2].residual = levels[3].residual = 0.7
    best = choose(levels, conditions)
    other = 5 - best
    assert {best, other} == {2, 3}
    assert choose(levels, conditions, current=other) == other
    levels[best].residual = 0.0
    assert choose(levels, conditions, current=other) == best


def test_adaptive_measures_what_could_be_better_and_nothing_else() -> None:
    levels = usual_levels()
    assert worth_measuring(levels, on(100)) == [2, 3, 4], "if it owed half as much, each would be the best"
    assert worth_measuring(levels, on(3)) == [], "only one is quick enough"
    assert 0 not in worth_measuring(levels, on(1000)), "what leaves nothing out is known"
    levels[2].residual = levels[4].residual = 9.0
    assert worth_measuring(levels, on(100)) == [3], "what was found to owe much does not owe little now"


def test_exchanges_are_spaced_out_by_what_they_cost() -> None:
    whole = usual_levels()[1]
    assert whole.period(Conditions(0.025, 0.0, 0.0, overhead=0.04, budget=2.0)) == pytest.approx(2.6)
    assert whole.period(Conditions(0.025, 1e-7, 0.0, overhead=0.04, budget=2.0)) == pytest.approx(5.8), (
        "packet by packet"
    )
    assert whole.period(Conditions(10.0, 0.0, 0.0, overhead=0.04, budget=2.0)) == 1, "not more than one in a step"
    whole.slowdown = 2.0
    assert whole.period(Conditions(0.025, 0.0, 0.0, overhead=0.04, budget=2.0)) == pytest.approx(3.6)


def test_what_a_form_has_trouble_with_is_measured_too() -> None:
    shapes = ((20, 30),)
    stream = Stream(shapes)
    level = CompressionLevel(PowerSGD(rank=1), stream, Stream(shapes), bytes=200, hops=1, work_seconds=0.001)
    same = torch.randn(600, generator=torch.Generator().manual_seed(0))
    vectors = [same for _ in range(6)]
    fresh = [level.measure(vector, first=True) for vector in vectors]
    in_a_row = [level.measure(vector, first=index == 0) for index, vector in enumerate(vectors)]
    assert in_a_row[-1] > 2 * fresh[-1], "what is left out again and again gathers"
    assert level.measure(torch.zeros(600), first=True) == 0.0


@pytest.mark.parametrize(("optimizer", "weight"), [(torch.optim.Adam, 0.2), (torch.optim.SGD, 1.0)])
def test_what_rounding_owes_is_missed_less_with_adam(optimizer: Any, weight: float) -> None:
    workload = blobs(optimizer=lambda parameters: optimizer(parameters, lr=0.01))
    experiment = Experiment(workload="blobs", strategy=Adaptive(), cluster=Cluster(nodes=2), training=Training(steps=4))
    levels = train_in_threads(experiment, workload)[0].state["adaptive"].levels
    assert {level.weight for level in levels if isinstance(level.codec, Int8 | Int4 | Sign)} == {weight}
    assert {level.weight for level in levels if isinstance(level.codec, Plain | PowerSGD)} == {1.0}


def test_how_long_a_form_takes_is_learnt_of_that_form_alone() -> None:
    experiment = Experiment(
        workload="blobs", strategy=Adaptive(), cluster=Cluster(nodes=2), training=Training(steps=40, evaluate_every=0)
    )
    controllers = [replica.state["adaptive"] for replica in train_in_threads(experiment, blobs())]
    learnt = [[level.slowdown for level in controller.levels] for controller in controllers]
    assert learnt[0] == learnt[1], "all ranks must know the same, to choose the same"
    unlearnt = CompressionLevel(Plain(), Stream(((1,),)), Stream(((1,),)), bytes=1, hops=1, work_seconds=1).slowdown
    changed = {describe(level.codec) for level in controllers[0].levels if level.slowdown != unlearnt}
    assert changed and changed <= set(controllers[0].used)


def test_adaptive_goes_on_for_those_who_are_slower() -> None:
    experiment = Experiment(
        workload="blobs",
        strategy=Adaptive(),
        cluster=Cluster(nodes=3, speeds=(1, 1, 0.1)),
        training=Training(steps=60, evaluate_every=0),
    )
    replicas: list[Replica] = train_in_threads(experiment, blobs())
    assert all(torch.equal(replica.parameters, replicas[0].parameters) for replica in replicas)
    assert all(replica.notes["exchanges"] == replicas[0].notes["exchanges"] for replica in replicas)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("local_sgd:period=0", "period"),
        ("local_sgd:period=4,overlap=5", "at most the period"),
        ("local_sgd:codec=(top_k:momentum_correction=true)", "allreduce or ps"),
        ("diloco:period=4,fragments=5", "at most the period"),
        ("diloco:outer_momentum=1", "below 1"),
        ("adaptive:budget=0", "between 0.5"),
        ("adaptive:overhead=2", "between 0.001"),
    ],
)
def test_what_cannot_be_is_refused(text: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        parse(Strategy, text)  # type: ignore[type-abstract]
