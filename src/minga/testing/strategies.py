"""What every strategy must do, and what those must do that promise to equal one process with a larger batch."""

from __future__ import annotations

import dataclasses
import inspect
import math
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from minga.base.config import fields_of
from minga.base.spec import describe, parse
from minga.comm.threads import run_threads
from minga.errors import DivergedError
from minga.model.replica import Replica
from minga.runs.experiment import Cluster, Experiment, Training
from minga.runs.workload import Workload
from minga.strategies import Single, Strategy
from minga.strategies.capabilities import active
from minga.testing.problems import adam, blobs, sgd_with_momentum
from minga.testing.worlds import train_in_threads

__all__ = ["DeterministicStrategyConformance", "ExactStrategyConformance", "StrategyConformance"]


class StrategyConformance:
    """Inherit it, and make the strategy in `make`."""

    run_on: Callable[..., list[Any]] = staticmethod(run_threads)
    """How ranks are run: another transport's, such as `run_tcp_threads`, can be tried with the same kit."""

    def make(self) -> Strategy:
        raise NotImplementedError("return the strategy to test")

    def train(self, nodes: int, workload: Workload, **training: Any) -> list[Replica]:
        experiment = Experiment(
            workload=workload.name,
            strategy=self.make(),
            cluster=Cluster(nodes=nodes),
            training=Training(**training),
        )
        return train_in_threads(experiment, workload, run_on=self.run_on)

    @pytest.mark.parametrize("nodes", [1, 2, 3, 5])
    def test_it_learns_and_all_workers_agree_at_the_end(self, nodes: int) -> None:
        workload = blobs(optimizer=adam)
        replicas = self.train(nodes, workload, steps=120)[:nodes]
        for replica in replicas[1:]:
            assert torch.equal(replica.parameters, replicas[0].parameters)
        assert _loss(replicas[0], workload) < 0.4 * _initial_loss(workload)

    def test_a_rank_without_samples_in_a_short_last_batch_takes_part(self) -> None:
        # 5 workers x 8 = 40; 122 samples leave 2 for the last step of an epoch.
        replicas = self.train(5, blobs(samples=122), epochs=2)
        assert replicas[0].step >= 6
        assert bool(torch.isfinite(replicas[0].parameters).all())

    def test_a_worker_that_fails_ends_the_run_for_all(self) -> None:
        workload = blobs()
        calls = 0

        def fails_once(outputs: Tensor, targets: Tensor) -> Tensor:
            nonlocal calls
            calls += 1
            if calls == 12:
                raise ZeroDivisionError("this worker breaks")
            return torch.nn.functional.cross_entropy(outputs, targets)

        began = time.monotonic()
        with pytest.raises(ZeroDivisionError, match="this worker breaks"):
            self.train(3, dataclasses.replace(workload, loss=fails_once), steps=50)
        assert time.monotonic() - began < 20

    def test_losses_that_are_no_numbers_end_the_run_and_name_rank_and_step(self) -> None:
        workload = dataclasses.replace(blobs(), loss=lambda outputs, targets: outputs.sum() * math.nan)
        with pytest.raises(DivergedError, match=r"loss is nan on rank \d+ at step 3, and none of 3 steps in a row"):
            self.train(2, workload, steps=20, bad_steps_in_a_row=3)

    def test_a_gradient_that_is_no_number_leaves_no_trace(self) -> None:
        workload = blobs()
        calls = 0

        def bad_now_and_then(outputs: Tensor, targets: Tensor) -> Tensor:
            nonlocal calls
            calls += 1
            loss = torch.nn.functional.cross_entropy(outputs, targets)
            if calls in (7, 21, 22):
                return loss + (outputs * 0).abs().sqrt().sum()  # a number, but its derivative is none
            return loss

        replicas = self.train(3, dataclasses.replace(workload, loss=bad_now_and_then), steps=60)
        assert all(bool(torch.isfinite(replica.parameters).all()) for replica in replicas[:3])
        assert _loss(replicas[0], workload) < 0.8 * _initial_loss(workload)

    def test_it_can_be_written_and_read_as_a_string(self) -> None:
        strategy = self.make()
        assert parse(Strategy, describe(strategy)) == strategy  # type: ignore[type-abstract]

    def test_it_and_its_fields_are_documented(self) -> None:
        cls = type(self.make())
        assert cls.__doc__ and not cls.__doc__.startswith(f"{cls.__name__}("), "say what it does, and the paper"
        assert inspect.getmodule(cls) is not None
        undocumented = [name for name, _, _, about in fields_of(cls) if not about]
        assert not undocumented, f"a line under each field, please: {undocumented}"


class DeterministicStrategyConformance(StrategyConformance):
    """For algorithms whose outcome does not depend on who comes first."""

    def test_the_same_seed_gives_the_same_bits(self) -> None:
        first, again, other = (self.train(3, blobs(), steps=25, seed=seed)[0].parameters for seed in (4, 4, 5))
        assert torch.equal(first, again)
        assert not torch.equal(first, other)


class ExactStrategyConformance(DeterministicStrategyConformance):
    """For algorithms that are mathematically equal to one process with the whole batch."""

    @pytest.mark.parametrize("optimizer", [sgd_with_momentum, adam])
    @pytest.mark.parametrize("nodes", [2, 4])
    def test_n_workers_equal_one_process_with_n_times_the_batch(self, nodes: int, optimizer: Any) -> None:
        workload = blobs(optimizer=optimizer)
        distributed = self.train(nodes, workload, steps=100, batch=32 // nodes)
        single = train_alone(workload, steps=100, batch=32)
        assert (distributed[0].parameters - single.parameters).abs().max() < 1e-12

    @pytest.mark.parametrize(("nodes", "steps"), [(2, 100), (5, 34)])
    def test_batch_norm_is_that_of_one_process(self, nodes: int, steps: int) -> None:
        """10 samples in a step; 153 leave 3 for the last one of an epoch, which not all of 5 workers have some of."""
        if not active(self.make(), self.train(1, blobs(), steps=1)[0]).traits.averages_gradients:
            return  # it averages something else, which is the same where samples don't depend on each other
        workload = blobs(samples=153, batch_norm=True)
        distributed = self.train(nodes, workload, steps=steps, total_batch=10)
        single = train_alone(workload, steps=steps, batch=10)
        assert (distributed[0].parameters - single.parameters).abs().max() < 1e-11
        for own, other in zip(distributed[0].model.buffers(), single.model.buffers(), strict=True):
            torch.testing.assert_close(own, other, rtol=0, atol=1e-11)

    def test_it_is_in_lockstep(self) -> None:
        assert active(self.make(), self.train(1, blobs(), steps=1)[0]).traits.lockstep


def train_alone(workload: Workload, **training: Any) -> Replica:
    """One process, the baseline."""
    experiment = Experiment(workload=workload.name, strategy=Single(), training=Training(**training))
    return train_in_threads(experiment, workload)[0]


def _loss(replica: Replica, workload: Workload) -> float:
    inputs, targets = workload.train[:]
    with torch.no_grad():
        return float(workload.loss(replica.model(inputs), targets))


def _initial_loss(workload: Workload) -> float:
    torch.manual_seed(0)
    inputs, targets = workload.train[:]
    with torch.no_grad():
        return float(workload.loss(workload.model()(inputs), targets))
