"""What the conformance kit does not say of two levels: who is in a site, and what goes between sites."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from minga import Cluster, Experiment, Training, Transport
from minga.base.config import FieldError
from minga.codecs import Half, TopK
from minga.comm.threads import run_threads
from minga.comm.transport import Pending
from minga.measure.recorder import Recorder
from minga.strategies import AllReduce, Gossip, Hierarchical, ParameterServer, Single, Strategy, Switch
from minga.testing import train_in_threads
from minga.testing.problems import adam, blobs
from minga.testing.strategies import train_alone
from minga.training.loop import train
from minga.training.train_state import build_train_state

SITES = ["quito", "quito", "cuenca", "cuenca"]


class CountsBetweenSites(Transport):
    """Another transport, with the bytes that leave a site."""

    def __init__(self, inner: Transport, totals: dict[str, int]) -> None:
        self._inner = inner
        self._totals = totals
        self.rank, self.size, self.hosts = inner.rank, inner.size, inner.hosts

    def isend(self, tensor: Tensor, to: int, tag: int = 0) -> Pending:
        if self.hosts[to] != self.hosts[self.rank]:
            self._totals[f"rank {self.rank}"] = self._totals.get(f"rank {self.rank}", 0) + tensor.nbytes
        return self._inner.isend(tensor, to, tag)

    def ireceive(self, tensor: Tensor, source: int | None, tag: int = 0) -> Pending:
        return self._inner.ireceive(tensor, source, tag)

    def now(self) -> float:
        return self._inner.now()

    def sleep(self, seconds: float) -> None:
        self._inner.sleep(seconds)

    def start(self, function: Any) -> Pending:
        return self._inner.start(lambda background: function(CountsBetweenSites(background, self._totals)))

    def close(self) -> None:
        self._inner.close()


def between_sites(strategy: str) -> dict[str, float]:
    """How often each rank sends a whole vector's worth of bytes to another site in 24 steps."""
    short, long = bytes_between_sites(strategy, 24), bytes_between_sites(strategy, 48)
    vector = build_train_state(Experiment(workload="blobs"), blobs(), 0).replica.parameters
    differences = {rank: (long[rank] - short[rank]) / vector.nbytes for rank in long}  # neither start nor end
    return {rank: times for rank, times in differences.items() if times}


def bytes_between_sites(strategy: str, steps: int) -> dict[str, int]:
    experiment = Experiment(
        workload="blobs", strategy=strategy, cluster=Cluster(nodes=4), training=Training(steps=steps, evaluate_every=0)
    )
    train_states = [build_train_state(experiment, blobs(), rank) for rank in range(4)]
    totals: dict[str, int] = {}

    def body(comm: Transport) -> None:
        train(experiment, train_states[comm.rank], CountsBetweenSites(comm, totals), Recorder(None))

    run_threads(4, body, hosts=SITES)
    return totals


def trained(strategy: Strategy, nodes: int = 4, **training: Any) -> list[Tensor]:
    experiment = Experiment(
        workload="blobs", strategy=strategy, cluster=Cluster(nodes=nodes), training=Training(**training)
    )
    return [replica.parameters for replica in train_in_threads(experiment, blobs())]


@pytest.mark.parametrize("site_size", [1, 2, 3])
def test_two_levels_of_parameters_that_average_in_every_step_are_all_reduce(site_size: int) -> None:
    # Sites of 3 and 1: the larger one counts for more. SGD is linear, so averaging parameters is as good as gradients.
    across = Gossip(graph="exponential", overlap=False)
    found = trained(Hierarchical(site_size=site_size, across=across), steps=1)[0]
    assert float((found - train_alone(blobs(), steps=1, batch=32).parameters).abs().max()) < 1e-12


def test_two_sites_that_average_in_every_step_stay_all_reduce() -> None:
    found = trained(Hierarchical(site_size=2, across=Gossip(graph="ring", overlap=False)), steps=80)
    for parameters in found:
        assert float((parameters - train_alone(blobs(), steps=80, batch=32).parameters).abs().max()) < 1e-12


def test_seldom_exchanges_leave_less_between_sites() -> None:
    everybody = between_sites("ring")
    assert sum(everybody.values()) == pytest.approx(24 * 2 * 1.5, rel=0.02)  # 2 (1 - 1/4), over two of four links
    assert between_sites("hierarchical:inside=ring,across=ring") == {"rank 0": 24, "rank 2": 24}
    assert between_sites("hierarchical:inside=ring,across=(gossip:period=8)") == {"rank 0": 3, "rank 2": 3}


@pytest.mark.parametrize("across", [Gossip(period=3), Gossip(period=2, graph="ring", codec=Half(), overlap=False)])
def test_ranks_of_a_site_are_one_replica_all_the_time(across: Strategy) -> None:
    """With Adam, whose state must stay equal too: otherwise they would part after the next step."""
    strategy = Hierarchical(site_size=2, across=across)
    workload = blobs(optimizer=adam)
    experiment = Experiment(
        workload="blobs", strategy=strategy, cluster=Cluster(nodes=4), training=Training(steps=20, evaluate_every=0)
    )
    train_states = [build_train_state(experiment, workload, rank) for rank in range(4)]
    history: dict[int, list[Tensor]] = {rank: [] for rank in range(4)}

    def body(comm: Transport) -> None:
        train_state = train_states[comm.rank]
        compute = train_state.replica.compute_gradients

        def watched(loss: Any) -> None:
            history[comm.rank].append(train_state.replica.parameters.clone())
            compute(loss)

        train_state.replica.compute_gradients = watched  # type: ignore[method-assign]
        train(experiment, train_state, comm, Recorder(None))

    run_threads(4, body)
    for step in range(20):
        assert torch.equal(history[0][step], history[1][step])
        assert torch.equal(history[2][step], history[3][step])
    assert not torch.equal(history[0][-1], history[2][-1])


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"site_size": -1}, "site_size: should be 0 or more, not -1"),
        ({"codec": Half()}, r"codec: say for which level half is, such as across=\(gossip:codec=half\)"),
        ({"inside": ParameterServer()}, "inside: ps:mode=sync does not keep .* equal in every step; allreduce does"),
        ({"inside": Gossip()}, "inside: gossip.* does not keep"),
        ({"across": ParameterServer()}, "across: ps:mode=sync can't connect sites; possible are local_sgd"),
        ({"across": Single()}, "across: single can't connect sites"),
        ({"across": Switch()}, "across: switch can't connect sites"),
        ({"across": Hierarchical()}, "across: hierarchical can't connect sites"),
        (
            {"inside": AllReduce(codec=TopK(momentum_correction=True)), "across": AllReduce()},
            r"inside\.codec: top_k.* corrects momentum, in sites of several ranks only.*leave momentum_correction out",
        ),
        ({"across": Gossip(algorithm="asynchronous")}, "across: .*answers in the background"),
    ],
)
def test_impossible_settings(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(FieldError, match=message):
        Hierarchical(**fields)


def test_the_outer_field_is_named_when_an_inner_one_is_wrong() -> None:
    with pytest.raises(FieldError, match=r"across\.period: should be at least 1, not 0"):
        Strategy.from_value("hierarchical:across=(gossip:period=0)")


def test_a_strategy_that_exchanges_while_backward_runs_is_refused() -> None:
    class Eager(Gossip):
        def gradient_ready(self, *_: Any) -> None:
            pass

    with pytest.raises(FieldError, match="exchanges gradients while backward runs"):
        Hierarchical(across=Eager())
    assert Hierarchical(across=AllReduce()).across == AllReduce()
