"""A torch optimizer over a slice of the flat parameter vector, and its state as data.

    listed, tensors = pieces_to(optimizer.state())                 # JSON, and the tensors that it mentions
    optimizer.restore(pieces_from(listed, tensors))                # of the same elements, however they are cut

A worker updates the whole vector as one tensor (one kernel where the layers would take sixty), a parameter
server updates its shard; both with the workload's own optimizer, its parameter groups and its learning rates.
"""

from __future__ import annotations

import functools
import math
from collections import OrderedDict, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from minga.base.lazy import Tensor, nn, torch
from minga.errors import ProtocolError, UnsupportedError
from minga.model.clipping import clipping_of
from minga.model.layout import Layout

if TYPE_CHECKING:
    from torch.optim import Optimizer

__all__ = ["Piece", "SlicedOptimizer", "cut_evenly", "mean_of_pieces", "pieces_from", "pieces_to"]

# State that has no dimensions for any parameter, and so the shape of one without dimensions.
_COUNTERS = ("step", "mu_product")
# These divide by the size of recent gradients.
_ADAPTIVE = ("Adam", "AdamW", "Adagrad", "Adadelta", "Adamax", "NAdam", "RAdam", "RMSprop")
# For these the update of an element depends on that element alone, so layers may be cut and joined.
_ELEMENTWISE = (*_ADAPTIVE, "SGD", "ASGD", "Rprop")


@functools.cache
def _classes(names: tuple[str, ...]) -> tuple[type[Optimizer], ...]:
    return tuple(getattr(torch.optim, name) for name in names)


def _is_elementwise(optimizer: Optimizer) -> bool:
    # Exactly these classes: a subclass may do anything.
    kind, clipping = clipping_of(optimizer)
    return kind in _classes(_ELEMENTWISE) and (clipping is None or clipping.norm_of_each is None)


def cut_evenly(optimizer: Optimizer, layout: Layout, parts: int) -> list[tuple[int, int]]:
    """Cut the vector into `parts` slices for `parts` servers, between layers where the optimizer needs them whole."""
    return layout.cut(parts, between_layers=not _is_elementwise(optimizer))


@dataclass(frozen=True)
class Piece:
    """The optimizer's state of a part of the flat vector: momentum and the like, and counters."""

    start: int
    stop: int
    values: dict[str, Any]
    """By torch's names. Tensors with a value for each element have the piece's length; the rest is as it is."""
    per_element: frozenset[str]
    """The names of those tensors."""

    def tensors(self) -> list[Tensor]:
        """Those with a value for each element, in the order of their names."""
        return [self.values[name] for name in sorted(self.per_element)]


@dataclass(frozen=True)
class _Run:
    """Neighbouring parameters of one group, updated as one tensor."""

    group: int
    start: int
    stop: int
    parameter: nn.Parameter


class SlicedOptimizer:
    """`template`'s way of updating, for a slice of the flat vector."""

    def __init__(self, template: Optimizer, optimizer: Optimizer, runs: Sequence[_Run]) -> None:
        self._template = template
        self._optimizer = optimizer
        self._runs = runs
        self._options: list[dict[str, Any]] = [dict(group) for group in template.param_groups]

    @classmethod
    def in_place(cls, optimizer: Optimizer, layout: Layout, tensors: Sequence[nn.Parameter]) -> SlicedOptimizer:
        """The optimizer itself, over the model's own tensors: its `state_dict()` stays what users expect."""
        places = zip(layout.places, tensors, strict=True)
        return cls(optimizer, optimizer, [_Run(0, place.start, place.stop, tensor) for place, tensor in places])

    @classmethod
    def over(
        cls,
        template: Optimizer,
        groups: Sequence[int],
        layout: Layout,
        parameters: Tensor,
        gradients: Tensor,
        start: int = 0,
    ) -> SlicedOptimizer:
        """A copy of `template` over the elements of the flat vector that `parameters` holds, from `start` on.

        `groups` has the parameter group of each place in the layout.
        """
        joined = _is_elementwise(template)
        runs = []
        for group, low, high, shape in _cut_runs(groups, layout, start, start + parameters.numel(), joined):
            part = slice(low - start, high - start)
            parameter = nn.Parameter(parameters[part].view(shape))
            parameter.grad = gradients[part].view(shape)
            runs.append(_Run(group, low, high, parameter))
        return cls(template, _clone(template, runs), runs)

    def step(self, learning_rates: Sequence[float], scale: float = 1.0, decay: float | None = None) -> None:
        """One update with the gradients as they are; `learning_rates` has one value per parameter group.

        Steps are multiplied by `scale`, and weight decay that goes beside gradients (AdamW's) by `decay`, if given.
        """
        groups = self._optimizer.param_groups
        self._take_changed_options()
        usual: list[dict[str, Any]] = [
            {name: group[name] for name in ("lr", "weight_decay") if name in group} for group in groups
        ]
        for group, rate in zip(groups, learning_rates, strict=True):
            group["lr"] = rate * scale
            if decay is not None and group.get("decoupled_weight_decay"):
                group["weight_decay"] *= decay / scale  # torch multiplies it by the learning rate
        try:
            self._optimizer.step()
        finally:
            for group, before in zip(groups, usual, strict=True):
                group.update(before)

    def _take_changed_options(self) -> None:
        """What somebody set in the template's groups; not what the optimizer itself keeps in its own."""
        if self._optimizer is self._template:
            return
        for group, original, known in zip(
            self._optimizer.param_groups, self._template.param_groups, self._options, strict=True
        ):
            for key, value in original.items():
                if key != "params" and (key not in known or known[key] is not value):
                    group[key] = known[key] = value

    @property
    def adaptive(self) -> bool:
        """Whether it divides by the size of recent gradients."""
        return isinstance(self._template, _classes(_ADAPTIVE))

    def scale_of_share(self, share: float) -> float:
        """The factor on the learning rate for gradients from `share` of the usual batch."""
        return math.sqrt(share) if self.adaptive else share

    def state(self) -> list[Piece]:
        """Momentum and the like; the tensors are the optimizer's own, not copies."""
        pieces = []
        for run in self._runs:
            shape, values = run.parameter.shape, dict(self._optimizer.state.get(run.parameter, {}))
            alike = {key for key, value in values.items() if isinstance(value, Tensor) and value.shape == shape}
            per_element = frozenset(alike.difference(_COUNTERS))
            values |= {key: values[key].reshape(-1) for key in per_element}
            pieces.append(Piece(run.start, run.stop, values, per_element))
        return pieces

    def forget(self) -> None:
        """As if there had been no update yet."""
        self._optimizer.state.clear()

    def restore(self, pieces: Sequence[Piece]) -> None:
        """Go on from such a state of the same elements, however they were cut; what it does not cover stays."""
        for run in self._runs:
            sources = [piece for piece in pieces if piece.start < run.stop and run.start < piece.stop]
            sources.sort(key=lambda piece: piece.start)
            covered = sum(min(run.stop, piece.stop) - max(run.start, piece.start) for piece in sources)
            if covered < run.stop - run.start or not all(piece.values for piece in sources):
                continue
            taken: dict[str, Any] = {}
            for key, value in sources[0].values.items():
                if key in sources[0].per_element:
                    parts = [
                        piece.values[key][max(run.start, piece.start) - piece.start : run.stop - piece.start]
                        for piece in sources
                    ]
                    taken[key] = torch.cat(parts).view(run.parameter.shape).to(run.parameter.device)
                else:
                    taken[key] = value.clone() if isinstance(value, Tensor) else value
            self._optimizer.state[run.parameter] = taken


def _cut_runs(
    groups: Sequence[int], layout: Layout, start: int, stop: int, joined: bool
) -> list[tuple[int, int, int, tuple[int, ...]]]:
    """Group, start, stop and shape of what is updated as one tensor: neighbours of one group, or single layers."""
    runs: list[tuple[int, int, int, tuple[int, ...]]] = []
    for group, place in zip(groups, layout.places, strict=True):
        low, high = max(place.start, start), min(place.stop, stop)
        if low >= high:
            continue
        assert joined or (low, high) == (place.start, place.stop), "a layer was cut that must be whole"
        if joined and runs and runs[-1][0] == group and runs[-1][2] == low:
            low = runs.pop()[1]
        runs.append((group, low, high, (high - low,) if joined else tuple(place.shape)))
    return runs


def _clone(template: Optimizer, runs: Sequence[_Run]) -> Optimizer:
    """An optimizer of the same class and settings over other tensors, whatever its constructor looks like."""
    clone: Optimizer = object.__new__(type(template))
    clone.__dict__.update(template.__dict__)
    clone._optimizer_step_pre_hooks = OrderedDict()  # hooks are for the user's own calls
    clone._optimizer_step_post_hooks = OrderedDict()
    clone.__dict__.pop("step", None)  # a learning-rate scheduler wraps it, bound to the template
    clone.state = defaultdict(dict)
    clone.param_groups = [
        {**group, "params": [run.parameter for run in runs if run.group == index]}
        for index, group in enumerate(template.param_groups)
    ]
    return clone


def pieces_to(pieces: Sequence[Piece]) -> tuple[list[dict[str, Any]], dict[str, Tensor]]:
    """JSON that mentions tensors by name, and these."""
    listed: list[dict[str, Any]] = []
    tensors: dict[str, Tensor] = {}
    for number, piece in enumerate(pieces):
        values: dict[str, Any] = {}
        for key, value in piece.values.items():
            if isinstance(value, Tensor):
                name = f"optimizer:{number}:{key}"
                tensors[name] = value
                values[key] = {"tensor": name}
            elif value is None or isinstance(value, bool | int | float | str):
                values[key] = value
            else:
                raise UnsupportedError(
                    f"the optimizer keeps {key!r} as a {type(value).__name__}, which a checkpoint can't have"
                )
        per_element = sorted(piece.per_element)
        listed.append({"start": piece.start, "stop": piece.stop, "values": values, "per_element": per_element})
    return listed, tensors


def pieces_from(listed: Any, tensors: Mapping[str, Tensor]) -> list[Piece]:
    pieces = []
    for entry in listed:
        values = {
            key: tensors[value["tensor"]] if isinstance(value, dict) else value
            for key, value in entry["values"].items()
        }
        per_element = frozenset(entry["per_element"])
        if not all(isinstance(values[name], Tensor) for name in per_element):
            raise ProtocolError("the optimizer's state has numbers where tensors should be")
        pieces.append(Piece(int(entry["start"]), int(entry["stop"]), values, per_element))
    return pieces


def mean_of_pieces(states: Sequence[Sequence[Piece]]) -> list[Piece]:
    """The mean of several ranks' states, which are cut alike; counters are those of the first."""
    mean = []
    for alike in zip(*states, strict=True):
        first = alike[0]
        values = dict(first.values)
        for name in first.per_element:
            if values[name].is_floating_point() and all(name in piece.values for piece in alike):
                values[name] = torch.stack([piece.values[name].double() for piece in alike]).mean(0).to(values[name])
        mean.append(Piece(first.start, first.stop, values, first.per_element))
    return mean
