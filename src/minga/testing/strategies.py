"""What every strategy must do, and what those must do that promise to equal one process with a larger batch."""

from __future__ import annotations

import dataclasses
import inspect
import itertools
import math
import threading
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from minga.base.config import fields_of
from minga.base.spec import describe, parse
from minga.comm.threads import run_threads
from minga.comm.transport import Pending, Transport
from minga.errors import DivergedError
from minga.model.replica import Replica
from minga.runs.experiment import Checkpoints, Cluster, Experiment, Training
from minga.runs.workload import Workload
from minga.strategies import Single, Strategy
from minga.strategies.capabilities import Anchored, Checkpointed, active, capability
from minga.testing.problems import adam, blobs, counter, sgd_with_momentum
from minga.testing.worlds import train_in_threads, train_with_checkpoints, train_without
from minga.training.checkpoints.files import list_checkpoints
from minga.training.train_state import TrainState

__all__ = ["DeterministicStrategyConformance", "ExactStrategyConformance", "StrategyConformance"]


class StrategyConformance:
    """Inherit it, and make the strategy in `make`."""

    run_on: Callable[..., list[Any]] = staticmethod(run_threads)
    """How ranks are run: another transport's, such as `run_tcp_threads`, can be tried with the same kit."""

    def make(self) -> Strategy:
        raise NotImplementedError("return the strategy to test")

    def experiment(self, nodes: int, workload: Workload, **training: Any) -> Experiment:
        return Experiment(
            workload=workload.name,
            strategy=self.make(),
            cluster=Cluster(nodes=nodes),
            training=Training(**training),
            checkpoints=Checkpoints(every_steps=7, every_seconds=0, keep=100, keep_best=False),
        )

    def train(self, nodes: int, workload: Workload, **training: Any) -> list[Replica]:
        return train_in_threads(self.experiment(nodes, workload, **training), workload, run_on=self.run_on)

    def watch(
        self, workload: Workload, look: Callable[[TrainState, Transport], None], **training: Any
    ) -> list[Replica]:
        """Train on three workers; `look` is called on each of them after each of its steps."""
        experiment = self.experiment(3, workload, **training)
        return train_in_threads(experiment, workload, run_on=self.run_on, when_stepped=look)

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
        workload, calls = blobs(), itertools.count(1)

        def fails_once(outputs: Tensor, targets: Tensor) -> Tensor:
            if next(calls) == 12:
                raise ZeroDivisionError("this worker breaks")
            return torch.nn.functional.cross_entropy(outputs, targets)

        with pytest.raises(ZeroDivisionError, match="this worker breaks"):
            self.train(3, dataclasses.replace(workload, loss=fails_once), steps=50)

    def test_losses_that_are_nan_end_the_run_and_name_rank_and_step(self) -> None:
        workload = dataclasses.replace(blobs(), loss=lambda outputs, targets: outputs.sum() * math.nan)
        with pytest.raises(DivergedError, match=r"loss is nan on rank \d+ at step 3, and none of 3 steps in a row"):
            self.train(2, workload, steps=20, non_finite_steps_in_a_row=3)

    def test_a_gradient_that_is_nan_leaves_no_trace(self) -> None:
        workload, calls = blobs(), itertools.count(1)

        def bad_now_and_then(outputs: Tensor, targets: Tensor) -> Tensor:
            loss = torch.nn.functional.cross_entropy(outputs, targets)
            if next(calls) in (7, 21, 22):
                return loss + (outputs * 0).abs().sqrt().sum()  # finite, but its derivative is NaN
            return loss

        replicas = self.train(3, dataclasses.replace(workload, loss=bad_now_and_then), steps=60)
        assert all(bool(torch.isfinite(replica.parameters).all()) for replica in replicas[:3])
        assert _loss(replicas[0], workload) < 0.8 * _initial_loss(workload)

    @pytest.mark.parametrize("lost", [0, 2])
    def test_a_lost_rank_takes_no_sample_with_it_and_nobody_trains_on_one_twice(self, lost: int) -> None:
        """What it has learned is in the model of those who go on, or its samples come again; theirs do not."""
        uses: dict[str, Counter[int]] = defaultdict(Counter)

        def predict(model: torch.nn.Module, batch: Any) -> tuple[Tensor, Tensor]:
            uses[threading.current_thread().name].update(batch[0].tolist())
            return model(batch[0]), batch[1]

        workload = dataclasses.replace(counter(), predict=predict)
        survivors = train_without(self.experiment(3, workload), workload, lost=lost, step=11)
        counts = [state.replica.parameters for state in survivors[:2]]
        assert torch.equal(counts[0], counts[1])
        missing = int((counts[0] <= 0).sum())
        assert not missing, f"{missing} of {len(counts[0])} samples never reached the model"
        own = sum((found for name, found in uses.items() if name != f"rank-{lost}"), Counter())
        again = sum(times - 1 for times in own.values() if times > 1)
        # The step under way was broken off, and is made again.
        assert again <= 2 * workload.batch, f"the survivors have trained on {again} samples twice in an epoch"

    def test_a_training_goes_on_from_a_checkpoint(self, tmp_path: Path) -> None:
        workload = blobs(optimizer=adam)
        experiment = self.experiment(2, workload, steps=50, evaluate_every=0)
        train_with_checkpoints(tmp_path, experiment, workload)
        good = [checkpoint for checkpoint in list_checkpoints(tmp_path) if checkpoint.problem() is None]
        assert good, "there is no whole checkpoint"
        states = train_with_checkpoints(tmp_path, experiment, workload, resume=good[len(good) // 2].name, session=7)
        assert states[0].replica.step == 50
        assert torch.equal(states[0].replica.parameters, states[1].replica.parameters)
        assert _loss(states[0].replica, workload) < 0.8 * _initial_loss(workload)

    def test_evaluations_on_the_way_are_of_a_model_that_all_agree_on(self) -> None:
        """The mean of all replicas after some step since the evaluation before, or nearly; all ranks test the same."""
        workload = blobs(optimizer=adam)
        brought: dict[int, dict[str, Tensor]] = defaultdict(dict)
        tested: dict[int, dict[str, Tensor]] = defaultdict(dict)
        steps: dict[str, int] = {}
        in_charge: dict[int, Strategy] = {}

        def look(state: TrainState, comm: Transport) -> None:
            name, replica = threading.current_thread().name, state.replica
            steps[name] = replica.step
            in_charge[replica.step] = active(self.make(), replica)
            if active(self.make(), replica).traits.lockstep:
                brought[replica.step][name] = (
                    capability(self.make(), replica, Checkpointed).contribution(replica).clone()
                )
            elif comm.rank == 0:  # nobody waits for the others, and it tests what it has
                brought[replica.step][name] = replica.parameters.clone()

        def predict(model: torch.nn.Module, batch: Any) -> tuple[Tensor, Tensor]:
            if not model.training:
                name = threading.current_thread().name
                tested[steps[name]][name] = torch.cat([tensor.detach().reshape(-1) for tensor in model.parameters()])
            return model(batch[0]), batch[1]

        self.watch(dataclasses.replace(workload, predict=predict), look, epochs=3)
        on_the_way = sorted(tested)[:-1]  # the last one is after `finish`
        assert len(on_the_way) >= 2
        means = {step: torch.stack(list(vectors.values())).mean(0) for step, vectors in brought.items()}
        for before, step in itertools.pairwise(on_the_way):
            found = list(tested[step].values())
            assert all(torch.equal(each, found[0]) for each in found), f"ranks test other models after step {step}"
            if not isinstance(in_charge[step], Anchored):
                known, most = [step], 0.01
            elif in_charge[step].traits.adapts:  # its exchanges take as long as they take
                known, most = list(means), 0.7
            else:  # less what codecs have left out until then
                known, most = list(range(before + 1, step + 1)), 0.7
            way = (means[step] - means[before]).norm()
            off = min((found[0] - means[each]).norm() for each in known) / way
            assert off < most, f"not a common model after step {step}, but {off:.2f} of the way of an epoch from it"

    def test_its_traits_are_true(self) -> None:
        strategy = self.make()
        assert not strategy.traits.exact or isinstance(self, ExactStrategyConformance), (
            "a strategy that says it is exact passes ExactStrategyConformance"
        )
        parameters: dict[int, list[Tensor]] = defaultdict(list)
        started: dict[int, list[Pending]] = defaultdict(list)

        def look(state: TrainState, comm: Transport) -> None:
            replica, start, mine = state.replica, comm.start, started[comm.rank]
            traits = active(strategy, replica).traits
            if traits.lockstep and not traits.replicas_differ:
                parameters[replica.step].append(replica.parameters.clone())
            if not traits.hides_exchanges:
                assert all(pending.done for pending in mine), "an exchange goes on behind the end of a step"
            if replica.step == 1:
                setattr(comm, "start", lambda job: _listed(start(job), mine))  # noqa: B010

        self.watch(blobs(), look, steps=25)
        for step, found in parameters.items():
            same = all(torch.equal(each, found[0]) for each in found)
            assert same, f"replicas differ after step {step}: say so with Traits(replicas_differ=True)"

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

    def test_a_training_goes_on_from_a_checkpoint(self, tmp_path: Path) -> None:
        """Neither taking checkpoints nor going on from one changes a bit."""
        workload = blobs(optimizer=adam)
        experiment = self.experiment(3, workload, steps=20, evaluate_every=0)
        never = train_in_threads(experiment, workload)
        kept = train_with_checkpoints(tmp_path, experiment, workload)
        resumed = train_with_checkpoints(tmp_path, experiment, workload, resume="step-00000014")
        for rank in range(3):
            assert torch.equal(kept[rank].replica.parameters, never[rank].parameters), "checkpoints change training"
            assert torch.equal(resumed[rank].replica.parameters, never[rank].parameters), "going on changes training"

    def test_steps_that_are_said_to_be_merged_have_left_a_trace(self) -> None:
        """Otherwise the samples of a lost rank would be missing, and nobody would know."""
        workload, changed_step = blobs(), 5

        def watched(*, change: bool) -> dict[tuple[int, int], tuple[Tensor, int]]:
            seen, calls = {}, itertools.count(1)

            def loss(outputs: Tensor, targets: Tensor) -> Tensor:
                if threading.current_thread().name == "rank-2" and next(calls) == changed_step and change:
                    outputs = -3 * outputs
                return torch.nn.functional.cross_entropy(outputs, targets)

            def look(state: TrainState, comm: Transport) -> None:
                replica = state.replica
                seen[comm.rank, replica.step] = replica.parameters.clone(), replica.progress.merged_steps[2]

            self.watch(dataclasses.replace(workload, loss=loss, test=None), look, steps=20)
            return seen

        usual, other = watched(change=False), watched(change=True)
        for (rank, step), (parameters, merged) in usual.items():
            if rank != 2 and merged >= changed_step:
                left_a_trace = not torch.equal(parameters, other[rank, step][0])
                assert left_a_trace, f"rank {rank} says at step {step} that it has merged steps 1 to {merged} of rank 2"


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
            pytest.skip("it averages something else, which is the same where samples don't depend on each other")
        workload = blobs(samples=153, batch_norm=True)
        distributed = self.train(nodes, workload, steps=steps, total_batch=10)
        single = train_alone(workload, steps=steps, batch=10)
        assert (distributed[0].parameters - single.parameters).abs().max() < 1e-11
        for own, other in zip(distributed[0].model.buffers(), single.model.buffers(), strict=True):
            torch.testing.assert_close(own, other, rtol=0, atol=1e-11)

    def test_it_is_in_lockstep(self) -> None:
        assert active(self.make(), self.train(1, blobs(), steps=1)[0]).traits.lockstep


def _listed(pending: Pending, where: list[Pending]) -> Pending:
    where.append(pending)
    return pending


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
