"""What a workload costs on a device: a small JSON file that can be copied between machines and edited by hand.

    profile = load_profile(Path("digits.profile.json"))
    profile.compute_of(64).forward                        # seconds, between or beyond the batches that were measured
    profile.seconds_to_encode(Int8(), 421_642)

`minga profile` measures one (`minga.simulate.profiling`).
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from minga.base.config import Config, FieldError, build
from minga.base.lazy import Tensor, torch
from minga.base.spec import describe
from minga.codecs.base import Codec
from minga.codecs.stream import Stream
from minga.errors import ConfigError
from minga.model.clipping import clipping_of
from minga.model.layout import Layout
from minga.model.replica import Replica

__all__ = [
    "CodecCost",
    "Compute",
    "Layer",
    "OptimizerFacts",
    "Profile",
    "VectorTimer",
    "load_profile",
    "save_profile",
]

FORMAT = 1


@dataclass(frozen=True, kw_only=True)
class Layer(Config):
    """One parameter of the model."""

    kind = "layer"

    name: str
    shape: tuple[int, ...]
    ready: float = 1.0
    """When its gradient is there, as a part of the time of the backward pass."""

    def check(self) -> None:
        if any(length < 1 for length in self.shape):
            raise FieldError(("shape",), f"should be lengths of at least 1, not {list(self.shape)}")
        if not 0 <= self.ready <= 1:
            raise FieldError(("ready",), f"should be a part of the backward pass, 0 to 1, not {self.ready:g}")


@dataclass(frozen=True, kw_only=True)
class Compute(Config):
    """What a step costs with one size of batch, in seconds; medians."""

    kind = "compute"

    batch: int
    data: float = 0.0
    forward: float
    backward: float
    other: float = 0.0
    """Of a step, besides all that is named here: the loop itself."""
    memory_bytes: float = 0.0

    @property
    def seconds(self) -> float:
        return self.data + self.forward + self.backward + self.other

    def check(self) -> None:
        _check_seconds(self, "data", "forward", "backward", "other")
        if self.batch < 1:
            raise FieldError(("batch",), f"should be at least 1, not {self.batch}")
        if not self.seconds > 0:
            raise FieldError(("forward",), "should be above 0, or one of data, backward and other: a step takes time")


@dataclass(frozen=True, kw_only=True)
class CodecCost(Config):
    """How long a codec takes for a vector of the model's length, in seconds."""

    kind = "cost of a codec"

    encode: float
    decode: float

    def check(self) -> None:
        _check_seconds(self, "encode", "decode")


@dataclass(frozen=True, kw_only=True)
class OptimizerFacts(Config):
    """What strategies want to know of the optimizer."""

    kind = "optimizer"

    name: str = "SGD"
    adaptive: bool = False
    groups: int = 1
    momentum: float = 0.0

    @classmethod
    def of(cls, replica: Replica) -> OptimizerFacts:
        optimizer = replica.optimizer
        return cls(
            name=clipping_of(optimizer)[0].__name__,
            adaptive=replica.optimizer_is_adaptive,
            groups=len(optimizer.param_groups),
            momentum=float(optimizer.param_groups[0].get("momentum", 0.0)),
        )


@dataclass(frozen=True, kw_only=True)
class Profile(Config):
    """A workload on a device."""

    kind = "profile"
    formats: ClassVar[tuple[int, ...]] = (FORMAT,)

    workload: str
    layers: tuple[Layer, ...]
    """In the order of the flat vector."""
    compute: tuple[Compute, ...]
    """By size of batch, ascending."""
    update_seconds: float
    """Of the optimizer, for all parameters."""
    samples: int
    batch: int = 32
    """The workload's own, of each node."""
    epochs: int = 5
    dtype: str = "float32"
    codecs: dict[str, CodecCost] = field(default_factory=dict)
    optimizer: OptimizerFacts = field(default_factory=OptimizerFacts)
    batch_norms: tuple[int, ...] = ()
    """Channels of each BatchNorm layer, whose sums go over the network too where gradients are averaged."""
    spread: tuple[float, ...] = (1.0,)
    """The time of a step relative to the median, at equal distances from the shortest to the longest."""
    pass_seconds: float = 0.0
    """Of going once through all parameters, reading and writing."""
    evaluate_seconds: float = 0.0
    """Of testing the model, on one node."""
    device: str = ""
    """For people: what was measured, and where."""
    processes: int = 1
    """How many were measured at once on the same machine."""
    format: int = FORMAT

    def check(self) -> None:
        if self.format not in self.formats:
            raise FieldError(("format",), f"is {self.format}; this version of minga reads {self.formats[0]}")
        if not self.layers:
            raise FieldError(("layers",), "has no layers")
        if not self.compute:
            raise FieldError(("compute",), "needs the times of at least one batch")
        batches = [each.batch for each in self.compute]
        if batches != sorted(set(batches)):
            raise FieldError(("compute",), f"should be ordered by batch, each of them once, not {batches}")
        if not isinstance(getattr(torch, self.dtype, None), torch.dtype):
            raise FieldError(("dtype",), f"should be a type of torch, such as float32, not {self.dtype!r}")
        _check_seconds(self, "update_seconds", "pass_seconds", "evaluate_seconds")
        for name in ("samples", "batch", "epochs"):
            if getattr(self, name) < 1:
                raise FieldError((name,), f"should be at least 1, not {getattr(self, name)}")
        if not self.spread or not all(0 < each < math.inf for each in self.spread):
            raise FieldError(("spread",), f"should be times relative to the median, above 0, not {list(self.spread)}")

    @property
    def mean_factor(self) -> float:
        """The mean time of a step, relative to the median."""
        pairs = [(low + high) / 2 for low, high in itertools.pairwise(self.spread)]
        return sum(pairs) / len(pairs) if pairs else self.spread[0]

    @property
    def parameters(self) -> int:
        return sum(math.prod(layer.shape) for layer in self.layers)

    @property
    def nbytes(self) -> int:
        return self.parameters * self.torch_dtype.itemsize

    @property
    def torch_dtype(self) -> torch.dtype:
        found: torch.dtype = getattr(torch, self.dtype)
        return found

    @property
    def layout(self) -> Layout:
        return Layout.of((layer.name, torch.empty(layer.shape, device="meta")) for layer in self.layers)

    def compute_of(self, batch: float) -> Compute:
        """Between two measured batches in proportion; beyond them, on the line through the two nearest."""
        known = self.compute
        if len(known) == 1:
            factor = batch / known[0].batch
            return dataclasses.replace(
                known[0],
                batch=max(1, round(batch)),
                **{name: factor * getattr(known[0], name) for name in ("data", "forward", "backward")},
            )
        upper = next((index for index, each in enumerate(known) if each.batch >= batch), len(known) - 1)
        low, high = known[max(0, upper - 1)], known[max(1, upper)]
        part = (batch - low.batch) / (high.batch - low.batch)

        def at(name: str) -> float:
            first, second = getattr(low, name), getattr(high, name)
            # A line may fall below what any sample takes.
            least = first * batch / low.batch if batch < low.batch else min(first, second)
            return float(max(first + part * (second - first), least))

        values = {name: at(name) for name in ("data", "forward", "backward", "other", "memory_bytes")}
        return Compute(batch=max(1, round(batch)), **values)

    def seconds_of_update(self, elements: int) -> float:
        return self.update_seconds * (elements / self.parameters)

    def seconds_to_encode(self, codec: Codec, elements: int) -> float:
        return self.cost_of(codec).encode * (elements / self.parameters)

    def seconds_to_decode(self, codec: Codec, elements: int) -> float:
        return self.cost_of(codec).decode * (elements / self.parameters)

    def cost_of(self, codec: Codec) -> CodecCost:
        """Of a codec that was measured, or that changes nothing."""
        if not codec.changes_form:
            return CodecCost(encode=0.0, decode=self.pass_seconds)
        name = describe(codec)
        if name not in self.codecs:
            raise ConfigError(
                f"the profile of {self.workload} has no times for the codec {name}; measure it there: "
                f"minga profile {self.workload} --codec '{name}'"
            )
        return self.codecs[name]


@dataclass(frozen=True, kw_only=True)
class VectorTimer:
    """Times work on vectors, some times over."""

    trials: int
    now: Callable[[], float]
    choose: Callable[[list[float]], float] = min
    """Of the trials' times."""
    before_each: Callable[[], object] = lambda: None
    """Fills caches with other things."""

    def seconds(self, *parts: Callable[[], object]) -> list[float]:
        """Of some things that are done one after the other in each trial."""
        found: list[list[float]] = [[] for _ in parts]
        for _ in range(self.trials):
            for part, seconds in zip(parts, found, strict=True):
                self.before_each()
                began = self.now()
                part()
                seconds.append(self.now() - began)
        return [self.choose(seconds) for seconds in found]

    def cost_of(self, codec: Codec, vector: Tensor, stream: Stream) -> CodecCost:
        into, encoded = torch.empty_like(vector), codec.encoded_like(vector, stream)

        def encode() -> None:
            nonlocal encoded
            encoded = codec.encode(vector, stream)

        encoding, decoding = self.seconds(encode, lambda: codec.decode(encoded, into, stream))
        return CodecCost(encode=encoding, decode=decoding)

    def seconds_of_a_pass(self, vector: Tensor) -> float:
        """Of going once through it, reading and writing."""
        into = torch.empty_like(vector)
        return self.seconds(lambda: into.copy_(vector))[0]


def _check_seconds(table: Config, *names: str) -> None:
    for name in names:
        if not 0 <= getattr(table, name) < math.inf:
            raise FieldError((name,), f"should be seconds, 0 or more, not {getattr(table, name):g}")


def load_profile(path: Path) -> Profile:
    """Read a profile; errors say what is wrong with the file, and where."""
    try:
        table = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"can't read {path}: {error.strerror}; `minga profile WORKLOAD` makes one") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path} is no profile: it is not even text") from None
    except json.JSONDecodeError as error:
        raise ConfigError(f"{path} is no JSON: line {error.lineno}, {error.msg}") from None
    if not isinstance(table, dict):
        raise ConfigError(f"{path} is no profile: it should be an object with the fields of one")
    try:
        return build(Profile, table)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None


def save_profile(profile: Profile, path: Path) -> None:
    table: dict[str, Any] = {"format": profile.format} | dataclasses.asdict(profile)
    path.write_text(json.dumps(_rounded(table), indent=1) + "\n", encoding="utf-8")


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(item) for item in value]
    return float(f"{value:.6g}") if isinstance(value, float) else value
