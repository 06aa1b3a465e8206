"""One copy of the model, as the strategies see it: a flat vector of parameters and one of gradients.

    replica = Replica(model, optimizer)
    replica.compute_gradients(lambda: loss_of(model, batch)); replica.update()

The model's own tensors are views into the two vectors, so that sharding, sending and averaging are slices.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import math
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from minga.base.lazy import Tensor, nn, torch
from minga.codecs.stream import Stream
from minga.errors import WorkloadError
from minga.measure.spans import NO_SPANS, Spans
from minga.model.buffers import BatchNormStatistics
from minga.model.clipping import clipping_of
from minga.model.layout import Bucket, Layout, Place
from minga.model.non_finite import NonFinite, all_finite, find_non_finite
from minga.model.progress import Progress
from minga.model.sliced_optimizer import Piece, SlicedOptimizer

if TYPE_CHECKING:
    from torch.optim import Optimizer

    from minga.model.sync_batch_norm import AddUp

__all__ = ["Replica", "StepInfo", "trainable"]

Extension = TypeVar("Extension")


@dataclass
class StepInfo:
    """The facts of the step under way on one rank; the training loop writes its share, `Replica` the rest."""

    weight: float = 1.0
    """This rank's share of the batch of all ranks, relative to an equal share."""
    batch_fraction: float = 1.0
    """This rank's samples, relative to a full batch of its own; 0 where the end of an epoch left it none."""
    loss: float = math.nan
    """The loss of the last step on this rank."""
    non_finite: NonFinite | None = None
    """The NaN or infinity that is in this rank's own loss or gradients."""
    skipped: bool = False
    """Whether the step changed nothing, here or on another rank, because of that."""
    add_up: AddUp | None = None
    """How BatchNorm adds up sums over all ranks that have samples; None: each normalises over its own."""


class Replica:
    """A model and its optimizer behind one flat vector each of parameters and gradients."""

    def __init__(
        self, model: nn.Module, optimizer: Optimizer, *, spans: Spans = NO_SPANS, keep_optimizer: bool = False
    ) -> None:
        """`keep_optimizer`: update with the optimizer itself, not with a faster copy over the flat vector."""
        self.model = model
        self.optimizer = optimizer
        self._tensors = trainable(model)
        tensors = [tensor for _, tensor in self._tensors]
        self.layout = Layout.of(self._tensors)
        self.parameters, self.gradients = _flatten(tensors, self.layout)
        self._begin(spans)
        self._gradient_views = [tensor.grad for tensor in tensors]
        self._pointers = [tensor.data_ptr() for tensor in tensors]
        self._groups = _group_of_each(self._tensors, optimizer)
        if keep_optimizer:
            self._flat_optimizer = SlicedOptimizer.in_place(optimizer, self.layout, tensors)
        else:
            self._flat_optimizer = self._slice(self.parameters, self.gradients, 0)

    def _begin(self, spans: Spans) -> None:
        """What a replica has besides its model; its vectors are there already."""
        self.spans = spans
        self.rank = 0
        """For error messages; who is who is the transport's business."""
        self.info = StepInfo()
        self.progress = Progress(self.parameters, self.gradients)
        """Whose steps are in the parameters."""
        self.state: dict[str, Any] = {}
        """What strategies remember between steps: tensors, plain values, dataclasses of these; checkpoints have it."""
        self.notes: dict[str, Any] = {}
        """What strategies found out, for the run's events: numbers, strings, tables of them."""
        self._extensions: dict[type[Any], Any] = {}
        self.replicas = 1
        """Replicas that are averaged with each other, this one included; the training loop sets it."""
        self.in_sync = False
        """Whether all replicas are equal already when a strategy takes over from another, so that none need be sent."""
        self._pieces_of_part: list[Piece] = []
        self._hooks: list[Any] = []
        self._momentum: float | None = None
        self.buckets: list[Bucket] = []
        self.when_ready: Callable[[Bucket], None] | None = None
        """Called with each bucket, in order, as soon as backward has filled it."""
        self._next_bucket = 0

    @property
    def step(self) -> int:
        """The step under way, from 1 on."""
        return self.progress.step

    @step.setter
    def step(self, number: int) -> None:
        self.progress.step = number

    def extension(self, kind: type[Extension]) -> Extension:
        """What a capability keeps here over all changes of who is there, made at first use; no checkpoint has it."""
        if kind not in self._extensions:
            self._extensions[kind] = kind()
        found: Extension = self._extensions[kind]
        return found

    @property
    def learning_rates(self) -> list[float]:
        """One for each parameter group, as the optimizer has them now."""
        return [float(group["lr"]) for group in self.optimizer.param_groups]

    @property
    def optimizer_is_adaptive(self) -> bool:
        """Whether the optimizer divides by the size of recent gradients, as Adam and its relatives do."""
        return self._flat_optimizer.adaptive

    def has_finite_gradients(self) -> bool:
        return all_finite(self.gradients)

    def digest(self) -> str:
        """Of the parameters' bits: equal replicas have the same one."""
        parameters = self.parameters.detach().cpu().contiguous()
        return hashlib.sha256(parameters.view(torch.uint8).numpy().data).hexdigest()[:16]

    def shared_seed(self) -> int:
        """For random choices that equal replicas must make alike, and that differ from run to run."""
        return zlib.crc32(self.parameters[:1000].double().cpu().numpy().tobytes())

    def stream(self, name: str = "main", part: slice | None = None) -> Stream:
        """What a codec remembers of one kind of vector: of the length of `part` of the parameters (None: all)."""
        streams: dict[str, Stream] = self.state.setdefault("streams", {})
        if name not in streams:
            start, stop, _ = (part or slice(None)).indices(self.layout.length)
            # Names count, so that two streams of a rank don't draw the same random numbers.
            streams[name] = Stream(
                tuple(self.layout.shapes(start, stop)), seed=zlib.crc32(name.encode()), rank=self.rank
            )
        return streams[name]

    def compute_gradients(self, compute_loss: Callable[[], Tensor] | None) -> None:
        """Forward and backward on this rank's share of the batch; `None` for an empty share."""
        self._prepare_gradients()
        if compute_loss is None:
            return
        with self._normalising():
            with self.spans.span("forward"):
                loss = compute_loss()
            self.backward(loss)
        self.statistics.restore_if_non_finite()

    def _normalising(self) -> contextlib.AbstractContextManager[None]:
        if self.info.add_up is None:
            return contextlib.nullcontext()
        from minga.model.sync_batch_norm import normalising_together  # torch's classes are its own

        return normalising_together(self.model, self.info.add_up, weight=self.info.weight)

    @functools.cached_property
    def channels_of_batch_norms(self) -> tuple[int, ...]:
        """Of each layer that normalises over a batch; none where the run leaves each node to its own samples."""
        from minga.model.sync_batch_norm import channels_of_batch_norms

        return channels_of_batch_norms(self.model)

    @functools.cached_property
    def statistics(self) -> BatchNormStatistics:
        """Of these layers; whoever goes forward keeps them before."""
        return BatchNormStatistics(self.model)

    def backward(self, loss: Tensor) -> None:
        """Fill `gradients` from a loss that was computed already."""
        if loss.numel() != 1:
            raise WorkloadError(
                f"the loss has shape {tuple(loss.shape)}; it should be one number, the mean over samples"
            )
        self.info.loss = float(loss.detach())
        if not math.isfinite(self.info.loss):
            # Whoever averages this with others sees it too, in the place of gradients that mean nothing.
            self.info.non_finite = NonFinite(None, self.info.loss)
            if self.info.add_up is None:
                self.gradients.fill_(math.nan)
                return
            loss = loss * math.nan  # the others wait for this rank's part of their BatchNorm's sums
        if loss.grad_fn is None:
            raise WorkloadError("the loss does not depend on the model: was it detached or computed by no_grad?")
        with self.spans.span("backward"):
            loss.backward()  # type: ignore[no-untyped-call]
        self._keep_in_place()
        if not self.buckets:
            self._check_finite(self.layout.places, self.gradients)

    def _check_finite(self, places: Sequence[Place], gradients: Tensor) -> None:
        """Look for NaN and infinities among this rank's own gradients."""
        if self.info.non_finite is None and not all_finite(gradients):
            self.info.non_finite = find_non_finite(places, gradients, places[0].start)

    def update(self, *, averaged: bool | None = None) -> None:
        """Apply `gradients` with the workload's optimizer; where they are non-finite nothing changes.

        `averaged`: whether they are the mean over all replicas; by default, whether `all_reduce_mean` has made them
        that in this step. Otherwise they are this rank's own, and the outcome will be averaged with that of other
        replicas. Adam and its relatives divide by the size of gradients, noise included, and that of a rank alone has
        more of it than the mean of all: averaged, its steps would be too short by the square root of their number
        (Malladi et al., arXiv:2205.10287). So they are lengthened by that, and the same learning rate learns as fast as
        with gradients that are averaged in every step; weight decay that goes beside gradients is not. SGD has no such
        trouble.
        """
        if averaged is None:
            averaged = self.replicas == 1 or self.progress.averaged_gradients >= self.layout.length
        if averaged:
            with self.spans.span("update"):
                self._apply(1.0, good=self.has_finite_gradients())
        elif not self.info.batch_fraction:  # momentum alone should not move a replica that had no samples
            self.progress.last_applied_step = self.step
        else:
            with self.spans.span("update"):
                # These gradients were looked at already, unless neighbours have averaged theirs with them since.
                good = self.has_finite_gradients() if self.buckets else self.info.non_finite is None
                self._apply(math.sqrt(self.replicas) if self.optimizer_is_adaptive else 1.0, good=good, decay=1.0)

    def _apply(self, scale: float, *, good: bool, decay: float | None = None) -> None:
        self.progress.last_applied_step = self.step  # also where there is nothing to apply: the step is over
        self.info.skipped = not good
        if good:
            self._flat_optimizer.step(self.learning_rates, scale, decay)

    def cut_buckets(self, nbytes: int) -> None:
        """From now on, gradients become ready in buckets of about `nbytes` while backward is running."""
        elements = max(1, nbytes // self.gradients.element_size())
        places = self.layout.places
        self.buckets = []
        for index, members in enumerate(self.layout.buckets(elements)):
            own = places[members.start : members.stop]
            self.buckets.append(Bucket(index, self.gradients[own[0].start : own[-1].stop], own))
        self._watch_buckets()

    def drop_buckets(self) -> None:
        """From now on, gradients become ready as a whole."""
        self.buckets = []
        self._watch_buckets()

    def _watch_buckets(self) -> None:
        """Have backward report which parameters have their gradient."""
        for hook in self._hooks:
            hook.remove()
        tensors = dict(self._tensors)
        self._hooks = [
            tensors[place.name].register_post_accumulate_grad_hook(functools.partial(self._filled, bucket, place.name))  # type: ignore[no-untyped-call]
            for bucket in self.buckets
            for place in bucket.places
        ]

    def _filled(self, bucket: Bucket, name: str, _: Tensor) -> None:
        if name in bucket.filled:
            raise WorkloadError(
                f"{name} gets its gradient in several pieces, when a part of it may be sent already; where that "
                "comes from torch.utils.checkpoint, use_reentrant=False avoids it; in a loop of your own, remove "
                "loss.backward(), which run.step(loss) does"
            )
        bucket.filled.add(name)
        if bucket.complete:
            self._announce()

    def _announce(self) -> None:
        # In order on every rank: a collective of the third bucket must not meet one of the second.
        while self._next_bucket < len(self.buckets) and self.buckets[self._next_bucket].complete:
            bucket = self.buckets[self._next_bucket]
            self._next_bucket += 1
            self._check_finite(bucket.places, bucket.gradients)
            if self.when_ready is not None:
                self.when_ready(bucket)

    def flush_buckets(self) -> None:
        """Announce what backward did not fill: layers that this batch did not use, or an empty share."""
        for bucket in self.buckets:
            bucket.filled.update(place.name for place in bucket.places)
        self._announce()

    def _prepare_gradients(self) -> None:
        self.info.non_finite, self.info.skipped, self.progress.averaged_gradients = None, False, 0
        self.gradients.zero_()
        for (_, tensor), view in zip(self._tensors, self._gradient_views, strict=True):
            if tensor.grad is not view:  # somebody called zero_grad(), which drops them
                tensor.grad = view
        for bucket in self.buckets:
            bucket.filled.clear()
            bucket.pending = None
        self._next_bucket = 0

    @property
    def gradients_version(self) -> int:
        """It changes whenever anything writes gradients."""
        return self.gradients._version

    def has_other_gradients(self, version: int) -> bool:
        """Whether anybody has computed gradients since this version; zeros, as of `zero_grad()`, do not count."""
        pairs = zip(self._tensors, self._gradient_views, strict=True)
        if any(tensor.grad is not None and tensor.grad is not view for (_, tensor), view in pairs):
            return True
        return self.gradients_version != version and bool(self.gradients.any())

    def _keep_in_place(self) -> None:
        """Parameters that have got another storage, as by `p.data = p.data.clamp(0, 1)`, are views again of its values.

        Otherwise what is exchanged and updated would not be what the model computes with.
        """
        for (name, tensor), pointer, place in zip(self._tensors, self._pointers, self.layout.places, strict=True):
            if tensor.data_ptr() == pointer:
                continue
            view = self.parameters[place.start : place.stop].view(place.shape)
            if (tensor.shape, tensor.dtype, tensor.device) != (view.shape, view.dtype, view.device):
                was, now = (f"{tuple(each.shape)} {each.dtype} on {each.device}" for each in (view, tensor))
                raise WorkloadError(f"{name} was {was} when training began and is {now} now; change models before that")
            view.copy_(tensor.data)
            tensor.data = view

    def hand_over_momentum(self) -> float:
        """SGD's momentum, which the optimizer has no longer: somebody else accumulates it from now on."""
        if self._momentum is not None:  # handed over already, before a recovery
            return self._momentum
        factors = {float(group.get("momentum", 0)) for group in self.optimizer.param_groups}
        if not isinstance(self.optimizer, torch.optim.SGD) or len(factors) > 1:
            raise WorkloadError(
                f"momentum correction is for SGD with one momentum, not for {type(self.optimizer).__name__}; "
                "leave momentum_correction out"
            )
        if clipping_of(self.optimizer)[1] is not None:
            raise WorkloadError(
                "momentum correction adds up gradients before they are averaged, so they can't be clipped afterwards; "
                "leave clipping or momentum_correction out"
            )
        for option in ("nesterov", "dampening"):
            if any(group.get(option) for group in self.optimizer.param_groups):
                raise WorkloadError(
                    f"momentum correction is for SGD with plain momentum, not with {option}; leave {option} or "
                    "leave momentum_correction out"
                )
        for group in self.optimizer.param_groups:
            group["momentum"] = 0.0
        self._momentum = factors.pop()
        return self._momentum

    def fragments(self, number: int) -> list[slice]:
        """The flat vector in about equal parts, cut between layers; parts may be empty where layers are few."""
        return [slice(*cut) for cut in self.layout.cut(number)]

    # --- for servers and checkpoints ------------------------------------------------------------------------------

    def optimizer_of(self, part: slice, parameters: Tensor, gradients: Tensor) -> SlicedOptimizer:
        """An optimizer for a copy of a part of the parameters, which goes on from this replica's state."""
        optimizer = self._slice(parameters, gradients, part.start)
        optimizer.restore(self._flat_optimizer.state())
        optimizer.restore(self._pieces_of_part)
        return optimizer

    def optimizer_state(self) -> list[Piece]:
        """Momentum and the like of the whole vector."""
        return self._flat_optimizer.state()

    def forget_optimizer(self) -> None:
        """As if there had been no update yet."""
        self._flat_optimizer.forget()

    def restore_optimizer(self, pieces: Sequence[Piece]) -> None:
        """Go on with such a state; what is of a part only is for `optimizer_of` that part."""
        self._flat_optimizer.restore(pieces)
        partial = sum(piece.stop - piece.start for piece in pieces) < self.layout.length
        self._pieces_of_part = list(pieces) if partial else []

    def _slice(self, parameters: Tensor, gradients: Tensor, start: int) -> SlicedOptimizer:
        return SlicedOptimizer.over(self.optimizer, self._groups, self.layout, parameters, gradients, start)


def trainable(model: nn.Module) -> list[tuple[str, nn.Parameter]]:
    """The parameters that training changes, with their names; an error if there are none, or of several kinds."""
    tensors = [(name, tensor) for name, tensor in model.named_parameters() if tensor.requires_grad]
    name_of_model = type(model).__name__
    if not tensors:
        raise WorkloadError(f"{name_of_model} has no parameters to train (none with requires_grad=True)")
    if any(map(nn.parameter.is_lazy, [*model.parameters(), *model.buffers()])):
        raise WorkloadError(f"{name_of_model} has lazy layers; run it once on a sample in the function that makes it")
    kinds = {(tensor.dtype, tensor.device) for _, tensor in tensors}
    if len(kinds) > 1:
        listed = ", ".join(sorted(f"{dtype} on {device}" for dtype, device in kinds))
        raise WorkloadError(
            f"the parameters of {name_of_model} are of several kinds ({listed}); "
            "bring them to one, for instance with model.to(torch.float32)"
        )
    return tensors


def _flatten(tensors: Sequence[nn.Parameter], layout: Layout) -> tuple[Tensor, Tensor]:
    """Move tensors into one vector, of which they become views; the same for their gradients."""
    parameters = torch.cat([tensor.detach().reshape(-1) for tensor in tensors])
    gradients = torch.zeros_like(parameters)
    for tensor, place in zip(tensors, layout.places, strict=True):
        tensor.data = parameters[place.start : place.stop].view(tensor.shape)
        tensor.grad = gradients[place.start : place.stop].view(tensor.shape)
    return parameters, gradients


def _group_of_each(tensors: Sequence[tuple[str, nn.Parameter]], optimizer: Optimizer) -> list[int]:
    """The optimizer's parameter group of each tensor."""
    group_of = {id(p): index for index, group in enumerate(optimizer.param_groups) for p in group["params"]}
    forgotten = [name for name, tensor in tensors if id(tensor) not in group_of]
    if forgotten:
        raise WorkloadError(
            f"the optimizer does not know {len(forgotten)} parameters of the model ({', '.join(forgotten[:3])}...): "
            "freeze them with requires_grad=False, or give them to the optimizer"
        )
    own = {id(tensor) for _, tensor in tensors}
    foreign = [p for group in optimizer.param_groups for p in group["params"] if p.requires_grad and id(p) not in own]
    if foreign:
        shapes = ", ".join(str(tuple(p.shape)) for p in foreign[:3])
        raise WorkloadError(
            f"the optimizer has {len(foreign)} parameters that are not the model's (of shape {shapes}); "
            "register them in the model, so that they are exchanged too"
        )
    if isinstance(optimizer, torch.optim.LBFGS):
        raise WorkloadError("LBFGS computes the loss several times in a step, which no strategy can share")
    return [group_of[id(tensor)] for _, tensor in tensors]
