"""A torch optimizer over slices of the flat vector does what torch's own does over the model's tensors."""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.optim import Optimizer

from minga.model.layout import Layout
from minga.model.replica import Replica
from minga.model.sliced_optimizer import SlicedOptimizer, cut_evenly
from minga.strategies.parameter_server.shard import Shard as ServersShard

SHAPES = [(4, 3), (4,), (2, 4), (2,), (3, 2), (3,)]
GROUPS = [0, 1, 0, 1, 1, 1]  # weights and biases apart, except for the last layer
ELEMENTS = sum(math.prod(shape) for shape in SHAPES)
FACTORS = (1.0, 0.1)  # on the learning rate, of each group


class LayerwiseSGD(Optimizer):
    """Like LARS: a step is as long as the layer's norm says, so a layer can't be cut or joined."""

    def __init__(self, params: Any, lr: float, momentum: float = 0.9) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            for parameter in group["params"]:
                trust = parameter.norm() / parameter.grad.norm()
                buffer = self.state[parameter].setdefault("momentum_buffer", torch.zeros_like(parameter))
                buffer.mul_(group["momentum"]).add_(parameter.grad, alpha=float(trust))
                parameter.sub_(buffer, alpha=group["lr"])


class RenamedSGD(torch.optim.SGD):
    """A subclass may do anything, so Minga can't know that this one does nothing."""


Make = Callable[[Any, float], Optimizer]

ELEMENTWISE: dict[str, Make] = {
    "sgd": lambda params, lr: torch.optim.SGD(params, lr=lr, momentum=0.9, weight_decay=0.01),
    "nesterov": lambda params, lr: torch.optim.SGD(params, lr=lr, momentum=0.9, nesterov=True),
    "adam": lambda params, lr: torch.optim.Adam(params, lr=lr, weight_decay=0.01),
    "amsgrad": lambda params, lr: torch.optim.Adam(params, lr=lr, amsgrad=True),
    "adamw": lambda params, lr: torch.optim.AdamW(params, lr=lr, weight_decay=0.1),
    "rmsprop": lambda params, lr: torch.optim.RMSprop(params, lr=lr, momentum=0.9, centered=True),
    "adagrad": lambda params, lr: torch.optim.Adagrad(params, lr=lr),
    "adadelta": lambda params, lr: torch.optim.Adadelta(params, lr=lr),
    "adamax": lambda params, lr: torch.optim.Adamax(params, lr=lr),
    "asgd": lambda params, lr: torch.optim.ASGD(params, lr=lr),
    "nadam": lambda params, lr: torch.optim.NAdam(params, lr=lr),
    "radam": lambda params, lr: torch.optim.RAdam(params, lr=lr),
    "rprop": lambda params, lr: torch.optim.Rprop(params, lr=lr),
}
WHOLE_LAYERS: dict[str, Make] = {
    "layerwise": lambda params, lr: LayerwiseSGD(params, lr=lr),
    "subclass": lambda params, lr: RenamedSGD(params, lr=lr, momentum=0.9),
}
ALL = ELEMENTWISE | WHOLE_LAYERS


class Model:
    """Tensors in two parameter groups that are views of a flat vector; their gradients are views of another."""

    def __init__(self, make: Make, rate: float = 0.05) -> None:
        generator = torch.Generator().manual_seed(0)
        self.parameters = torch.randn(ELEMENTS, dtype=torch.float64, generator=generator)
        self.gradients = torch.zeros_like(self.parameters)
        self.layout = Layout.of((str(index), torch.empty(shape)) for index, shape in enumerate(SHAPES))
        self.tensors = []
        for place in self.layout.places:
            tensor = nn.Parameter(self.parameters[place.start : place.stop].view(place.shape))
            tensor.grad = self.gradients[place.start : place.stop].view(place.shape)
            self.tensors.append(tensor)
        members = [[t for t, mine in zip(self.tensors, GROUPS, strict=True) if mine == group] for group in (0, 1)]
        self.rates = [rate * factor for factor in FACTORS]
        groups = [{"params": params, "lr": lr} for params, lr in zip(members, self.rates, strict=True)]
        self.optimizer = make(groups, rate)

    def whole(self) -> SlicedOptimizer:
        return self.slice(self.parameters, self.gradients)

    def slice(self, parameters: Tensor, gradients: Tensor, start: int = 0) -> SlicedOptimizer:
        return SlicedOptimizer.over(self.optimizer, GROUPS, self.layout, parameters, gradients, start)

    def in_place(self) -> SlicedOptimizer:
        return SlicedOptimizer.in_place(self.optimizer, self.layout, self.tensors)


class Shard:
    """A server's copy of one part of a model's vector."""

    def __init__(self, model: Model, start: int, stop: int) -> None:
        self.part = slice(start, stop)
        self.parameters = model.parameters[self.part].clone()
        self.gradients = torch.zeros_like(self.parameters)
        self.optimizer = model.slice(self.parameters, self.gradients, start)


def gradients(steps: int, first: int = 0) -> list[Tensor]:
    """Different ones in every step; those of steps from `first` on."""
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(ELEMENTS, dtype=torch.float64, generator=generator) for _ in range(first + steps)][first:]


def step(model: Model, optimizer: SlicedOptimizer, gradient: Tensor) -> None:
    model.gradients.copy_(gradient)
    optimizer.step(model.rates)


def by_torch(make: Make, steps: int) -> Tensor:
    """The vector after some steps with torch's own optimizer over the model's tensors."""
    model = Model(make)
    for gradient in gradients(steps):
        model.gradients.copy_(gradient)
        model.optimizer.step()
    return model.parameters


def assert_same(actual: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(actual, expected, rtol=1e-12, atol=1e-14)


def each(makes: dict[str, Make]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("make", makes.values(), ids=makes.keys())


# --- one vector, many tensors ------------------------------------------------------------------------------------


@each(ALL)
def test_the_whole_vector_moves_as_torch_moves_the_tensors(make: Make) -> None:
    model = Model(make)
    optimizer = model.whole()
    for gradient in gradients(5):
        step(model, optimizer, gradient)
    assert_same(model.parameters, by_torch(make, 5))


@each(ALL)
def test_in_place_moves_as_torch_moves_the_tensors(make: Make) -> None:
    model = Model(make)
    optimizer = model.in_place()
    for gradient in gradients(5):
        step(model, optimizer, gradient)
    assert_same(model.parameters, by_torch(make, 5))


@pytest.mark.parametrize("servers", [1, 2, 3])
@each(ALL)
def test_shards_together_move_as_the_whole(make: Make, servers: int) -> None:
    model = Model(make)
    shards = [Shard(model, *cut) for cut in cut_evenly(model.optimizer, model.layout, servers)]
    for gradient in gradients(5):
        for shard in shards:
            shard.gradients.copy_(gradient[shard.part])
            shard.optimizer.step(model.rates)
    assert_same(torch.cat([shard.parameters for shard in shards]), by_torch(make, 5))


def test_neighbours_of_one_group_are_updated_as_one_tensor() -> None:
    seen: list[int] = []
    model = Model(ELEMENTWISE["sgd"])
    optimizer = model.whole()
    optimizer._optimizer.register_step_pre_hook(
        lambda clone, *_: seen.extend(len(group["params"]) for group in clone.param_groups)
    )
    step(model, optimizer, gradients(1)[0])
    assert seen == [2, 2]  # of 2 and 4 tensors: the last three are neighbours


def test_a_shard_without_elements_does_nothing() -> None:
    model = Model(ELEMENTWISE["adam"])
    shard = Shard(model, 5, 5)
    shard.optimizer.restore(model.whole().state())
    shard.optimizer.step(model.rates)
    assert shard.parameters.numel() == 0


def test_the_models_own_optimizer_is_left_alone() -> None:
    model = Model(ELEMENTWISE["adam"])
    step(model, model.whole(), gradients(1)[0])
    assert not model.optimizer.state
    assert all(
        any(mine is tensor for tensor in model.tensors) for g in model.optimizer.param_groups for mine in g["params"]
    )


def test_in_place_keeps_the_state_where_users_look_for_it() -> None:
    model = Model(ELEMENTWISE["adam"])
    step(model, model.in_place(), gradients(1)[0])
    state = model.optimizer.state_dict()["state"]
    assert [tuple(state[index]["exp_avg"].shape) for index in range(2)] == [(4, 3), (2, 4)]


# --- cutting -----------------------------------------------------------------------------------------------------


@given(sizes=st.lists(st.integers(0, 30), min_size=1, max_size=10), parts=st.integers(1, 8))
def test_an_elementwise_optimizers_vector_is_cut_into_equal_parts(sizes: list[int], parts: int) -> None:
    layout = Layout.of((str(index), torch.empty(size)) for index, size in enumerate(sizes))
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=0.1)
    cuts = cut_evenly(optimizer, layout, parts)
    lengths = [stop - start for start, stop in cuts]
    assert max(lengths) - min(lengths) <= 1
    assert_no_gaps(cuts, layout.length)


@given(sizes=st.lists(st.integers(0, 30), min_size=1, max_size=10), parts=st.integers(1, 8))
def test_other_optimizers_vectors_are_cut_only_between_layers(sizes: list[int], parts: int) -> None:
    layout = Layout.of((str(index), torch.empty(size)) for index, size in enumerate(sizes))
    cuts = cut_evenly(LayerwiseSGD([torch.zeros(1)], lr=0.1), layout, parts)
    assert len(cuts) == parts
    assert set(itertools.chain.from_iterable(cuts)) <= {0, *itertools.accumulate(sizes)}
    assert_no_gaps(cuts, layout.length)


def assert_no_gaps(cuts: Sequence[tuple[int, int]], length: int) -> None:
    assert cuts[0][0] == 0 and cuts[-1][1] == length
    assert all(stop == start for (_, stop), (start, _) in itertools.pairwise(cuts))
    assert all(start <= stop for start, stop in cuts)


@each(ELEMENTWISE)
def test_optimizers_that_work_by_element_are_known(make: Make) -> None:
    model = Model(make)
    half = ELEMENTS // 2
    assert half not in {place.stop for place in model.layout.places}
    assert cut_evenly(model.optimizer, model.layout, 2) == [(0, half), (half, ELEMENTS)]


@pytest.mark.parametrize(("sizes", "cut"), [([10, 2, 13], 12), ([10, 10, 5], 10), ([1, 13, 10], 14)])
def test_a_cut_between_layers_is_the_nearest_to_an_even_one(sizes: list[int], cut: int) -> None:
    layout = Layout.of((str(index), torch.empty(size)) for index, size in enumerate(sizes))
    optimizer = LayerwiseSGD([torch.zeros(1)], lr=0.1)
    assert cut_evenly(optimizer, layout, 2) == [(0, cut), (cut, sum(sizes))]


def test_cutting_a_layer_that_must_be_whole_is_a_bug() -> None:
    model = Model(WHOLE_LAYERS["layerwise"])
    with pytest.raises(AssertionError, match="a layer was cut that must be whole"):
        Shard(model, 0, 5)


@each(WHOLE_LAYERS)
def test_an_optimizer_that_needs_layers_sees_them_in_their_shapes(make: Make) -> None:
    model = Model(make)
    shapes = [tuple(p.shape) for group in model.whole()._optimizer.param_groups for p in group["params"]]
    assert shapes == [(4, 3), (2, 4), (4,), (2,), (3, 2), (3,)]


# --- state goes along --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("servers", [1, 2, 3])
@pytest.mark.parametrize("kind", ["whole", "in_place"])
@each(ALL)
def test_shards_go_on_from_the_state_of_the_whole(make: Make, kind: str, servers: int) -> None:
    model = Model(make)
    whole: SlicedOptimizer = getattr(model, kind)()
    for gradient in gradients(3):
        step(model, whole, gradient)
    shards = [Shard(model, *cut) for cut in cut_evenly(model.optimizer, model.layout, servers)]
    for shard in shards:
        shard.optimizer.restore(whole.state())
    for gradient in gradients(2, first=3):
        for shard in shards:
            shard.gradients.copy_(gradient[shard.part])
            shard.optimizer.step(model.rates)
    assert_same(torch.cat([shard.parameters for shard in shards]), by_torch(make, 5))


@pytest.mark.parametrize("first", ["whole", "in_place"])
@each(ALL)
def test_state_goes_from_joined_tensors_to_the_models_own_and_back(make: Make, first: str) -> None:
    model = Model(make)
    one, other = (model.whole(), model.in_place()) if first == "whole" else (model.in_place(), model.whole())
    for gradient in gradients(2):
        step(model, one, gradient)
    other.restore(one.state())
    for gradient in gradients(2, first=2):
        step(model, other, gradient)
    one.restore(other.state())
    for gradient in gradients(2, first=4):
        step(model, one, gradient)
    assert_same(model.parameters, by_torch(make, 6))


@each({name: ALL[name] for name in ("sgd", "adam", "layerwise")})
def test_adopted_state_is_a_copy(make: Make) -> None:
    model = Model(make)
    source, taker = model.whole(), model.in_place()
    step(model, source, gradients(1)[0])
    taker.restore(source.state())
    taken = copy.deepcopy(model.optimizer.state_dict()["state"])
    step(model, source, gradients(1, first=1)[0])
    torch.testing.assert_close(model.optimizer.state_dict()["state"], taken, rtol=0, atol=0)


def test_before_the_first_step_there_is_nothing_to_adopt() -> None:
    model = Model(ELEMENTWISE["adam"])
    own = model.in_place()
    own.restore(model.whole().state())
    assert not model.optimizer.state
    step(model, own, gradients(1)[0])
    assert_same(model.parameters, by_torch(ELEMENTWISE["adam"], 1))


# --- learning rates ----------------------------------------------------------------------------------------------


def plain_sgd(params: Any, lr: float) -> Optimizer:
    return torch.optim.SGD(params, lr=lr)


@pytest.mark.parametrize("kind", ["whole", "in_place"])
def test_each_group_moves_with_the_rate_that_is_given_times_the_scale(kind: str) -> None:
    model = Model(plain_sgd)
    before = model.parameters.clone()
    model.gradients.fill_(1.0)
    getattr(model, kind)().step([0.5, 0.25], scale=0.1)
    moved = before - model.parameters
    for group, place in zip(GROUPS, model.layout.places, strict=True):
        expected = torch.full((place.stop - place.start,), (0.05, 0.025)[group], dtype=torch.float64)
        assert_same(moved[place.start : place.stop], expected)


@pytest.mark.parametrize("kind", ["whole", "in_place"])
def test_rates_are_afterwards_as_they_were(kind: str) -> None:
    model = Model(plain_sgd)
    optimizer = getattr(model, kind)()
    optimizer.step([0.5, 0.25], scale=0.1)
    assert [group["lr"] for group in model.optimizer.param_groups] == model.rates
    assert [group["lr"] for group in optimizer._optimizer.param_groups] == model.rates


def adamw(params: Any, lr: float) -> Optimizer:
    return torch.optim.AdamW(params, lr=lr, weight_decay=0.2)


@pytest.mark.parametrize("kind", ["whole", "in_place"])
def test_decay_beside_gradients_has_a_factor_of_its_own(kind: str) -> None:
    """Without gradients Adam's step is none, and what is left is the decay."""
    model = Model(adamw)
    before = model.parameters.clone()
    model.gradients.fill_(0.0)
    optimizer = getattr(model, kind)()
    optimizer.step([0.5, 0.25], scale=3.0, decay=0.1)
    for group, place in zip(GROUPS, model.layout.places, strict=True):
        own = slice(place.start, place.stop)
        assert_same(model.parameters[own], before[own] * (1 - 0.1 * (0.5, 0.25)[group] * 0.2))
    assert {group["weight_decay"] for group in optimizer._optimizer.param_groups} == {0.2}


def test_a_copy_follows_settings_that_change_on_the_way() -> None:
    model, reference = Model(ELEMENTWISE["sgd"]), Model(ELEMENTWISE["sgd"])
    optimizer = model.whole()
    for number, gradient in enumerate(gradients(4)):
        for either in (model, reference):
            for group in either.optimizer.param_groups:
                group["momentum"] = 0.9 - 0.1 * number
        step(model, optimizer, gradient)
        reference.gradients.copy_(gradient)
        reference.optimizer.step()
    assert_same(model.parameters, reference.parameters)


@pytest.mark.parametrize(
    ("name", "scale"),
    [
        *((name, 0.25) for name in ("sgd", "nesterov", "layerwise", "subclass")),
        *((name, 0.5) for name in ("adam", "amsgrad", "adamw", "rmsprop", "adagrad", "adadelta", "nadam", "radam")),
    ],
)
def test_a_quarter_of_a_batch_counts_a_quarter_or_half_where_gradients_are_normalized(name: str, scale: float) -> None:
    assert Model(ALL[name]).whole().scale_of_share(0.25) == scale


# --- hooks -------------------------------------------------------------------------------------------------------


def test_hooks_of_the_users_optimizer_are_not_called_by_its_copies() -> None:
    calls: list[str] = []
    model = Model(plain_sgd)
    model.optimizer.register_step_pre_hook(lambda *_: calls.append("before cloning"))
    optimizer = model.whole()
    model.optimizer.register_step_post_hook(lambda *_: calls.append("after cloning"))
    step(model, optimizer, gradients(1)[0])
    assert calls == []
    model.optimizer.step()
    assert calls == ["before cloning", "after cloning"]


def test_hooks_of_a_copy_are_not_called_by_the_users_optimizer() -> None:
    calls: list[str] = []
    model = Model(plain_sgd)
    model.whole()._optimizer.register_step_pre_hook(lambda *_: calls.append("copy"))
    model.optimizer.step()
    assert calls == []


def test_hooks_are_called_where_the_users_optimizer_updates_itself() -> None:
    calls: list[str] = []
    model = Model(plain_sgd)
    model.optimizer.register_step_pre_hook(lambda *_: calls.append("own"))
    step(model, model.in_place(), gradients(1)[0])
    assert calls == ["own"]


def test_a_learning_rate_schedulers_wrapper_stays_with_the_template() -> None:
    """Schedulers put a wrapped `step` on the optimizer itself, which a copy must not call."""
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.optim.lr_scheduler.StepLR(optimizer, 10)
    replica = Replica(model, optimizer)
    before = replica.parameters.clone()
    replica.gradients.fill_(1.0)
    replica.update()
    torch.testing.assert_close(replica.parameters, before - 0.1)


def test_state_of_a_parameter_without_dimensions_is_carried_over() -> None:
    model = torch.nn.ParameterList([torch.nn.Parameter(torch.tensor(1.0)), torch.nn.Parameter(torch.ones(3))])
    replica = Replica(model, torch.optim.Adam(model.parameters(), lr=0.1), keep_optimizer=True)
    replica.gradients.fill_(1.0)
    replica.update()
    shard = ServersShard(replica, slice(0, 4))
    shard.gradients.fill_(1.0)
    shard.update()
    replica.gradients.fill_(1.0)
    replica.update()
    torch.testing.assert_close(shard.parameters, replica.parameters)
