"""The only description of a run, in Python or in TOML.

Experiment(workload="digits", strategy="ps:mode=async", cluster=Cluster(nodes=4))

# experiment.toml
workload = "digits"
strategy = "ps:mode=async"      # or a table [strategy] with name = "ps", mode = "async"
[cluster]
nodes = 4
[training]
epochs = 5
"""

from __future__ import annotations

import copy
import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import tomli_w

from minga.base.config import Config, FieldError, limits
from minga.base.spec import Named, describe
from minga.base.toml_files import load_config
from minga.base.units import Seconds
from minga.comm import TRANSPORTS
from minga.errors import ConfigError, unknown
from minga.runs.network import Network
from minga.strategies import Adaptive, AllReduce, Single, Strategy
from minga.strategies.capabilities import check_nodes

__all__ = ["Checkpoints", "Cluster", "Experiment", "Measuring", "Training", "load", "with_codec", "with_overrides"]


@dataclass(frozen=True, kw_only=True)
class Cluster(Config):
    """On what: nodes, their devices and speeds."""

    kind = "cluster"

    nodes: Annotated[int, limits(1)] = 1
    """How many workers train; servers come on top."""

    device: Literal["cpu", "cuda"] = "cpu"
    """Where models live. With cuda, rank i uses GPU i modulo their number."""

    threads: Annotated[int, limits(1)] = 1
    """Threads of each process for computing; one core's worth by default."""

    speeds: tuple[float, ...] = ()
    """Pretended relative speed of each node, such as 1,1,0.25 (the last one four times slower); empty: all equal."""

    network: Network | None = None
    """Hosts with a network of their own, shaped like this (None: processes on the loopback of this machine)."""

    cpu: tuple[float, ...] = ()
    """Cores' worth of time for each host, such as 1,0.5; one value holds for all hosts; empty: no limit."""

    pin: bool = False
    """Keep each host on one core (host i on core i modulo their number)."""

    timeout_seconds: Seconds = 120.0
    """How long any rank waits for another before it gives up."""

    transport: str | None = None
    """The name of what carries messages. Default: tcp, but gloo on GPUs and for `native`, which is gloo's own
    all-reduce."""

    min_nodes: int = 1
    """With fewer workers, those who are left wait for others."""

    heartbeat_timeout_seconds: Annotated[Seconds, limits(0.5, 3600)] = 5.0
    """A node that is silent for so long is out; the others go on."""

    port: Annotated[int, limits(0, 65535)] = 0
    """Where the ranks meet (0: a free port), on loopback; in a lab they meet at its switch instead."""

    def check(self) -> None:
        if self.transport is not None and self.transport not in TRANSPORTS:
            raise FieldError(("transport",), str(unknown("transport", self.transport, TRANSPORTS)))
        if not self.timeout_seconds > 0:
            raise FieldError(("timeout_seconds",), f"should be more than 0, not {self.timeout_seconds:g}")
        if not 1 <= self.min_nodes <= self.nodes:
            raise FieldError(("min_nodes",), f"should be 1 to {self.nodes}, the nodes there are, not {self.min_nodes}")
        if self.speeds and len(self.speeds) != self.nodes:
            raise FieldError(
                ("speeds",), f"should have one value for each of the {self.nodes} nodes, not {len(self.speeds)}"
            )
        if any(not 0 < speed <= 1 for speed in self.speeds):
            raise FieldError(("speeds",), f"should be above 0 and at most 1, not {list(self.speeds)}")
        if any(not 0.01 <= share <= 1024 for share in self.cpu):
            raise FieldError(("cpu",), f"should be cores for each host, 0.01 or more, not {list(self.cpu)}")


@dataclass(frozen=True, kw_only=True)
class Training(Config):
    """How long, with which batches, from which seed."""

    kind = "training"

    epochs: Annotated[int, limits(1)] | None = None
    """Passes over the data (default: the workload's own number)."""

    steps: Annotated[int, limits(1)] | None = None
    """Steps of every worker, instead of epochs."""

    batch: Annotated[int, limits(1)] | None = None
    """Samples of each node in a step (default: the workload's own number)."""

    total_batch: Annotated[int, limits(1)] | None = None
    """Samples of all nodes together in a step, instead of `batch`: more nodes then do the same steps, divided."""

    seed: Annotated[int, limits(0)] = 0
    """Decides initial parameters, the order of the data, dropout."""

    start_from: str | None = None
    """A run's directory or a safetensors file: begin with its weights instead of random ones. The optimizer, the
    schedule and the order of the data start over."""

    drop_last: bool = False
    """Leave out what is left of an epoch when it is less than a full batch of all nodes."""

    read_ahead: Annotated[int, limits(0)] | None = None
    """Batches that threads read before they are needed; default: 4 of prepared sets, none of others, whose samples may
    not be made for threads."""

    readers: Annotated[int, limits(0)] = 0
    """Processes beside each rank that read its samples, for data sets that decode or compute; 0: none. Random numbers
    that samples are made with then depend on the place in the epoch alone."""

    batch_norm: Literal["all_nodes", "each_node"] = "all_nodes"
    """Whose samples BatchNorm normalises over where gradients are averaged in every step: all nodes', as one node with
    the whole batch does, or each node's own, which saves two short messages a layer; otherwise always each node's."""

    learning_rate: float | None = None
    """Instead of the workload's own."""

    learning_rate_rule: Literal["constant", "linear", "sqrt"] = "constant"
    """How the learning rate grows with the batch of all nodes, relative to what one node alone would take in a step."""

    evaluate_every: Annotated[float, limits(0)] = 1.0
    """Epochs between evaluations, 0.25 for four in an epoch (0: only at the end)."""

    non_finite_steps_in_a_row: Annotated[int, limits(1)] = 10
    """So many steps in a row with NaN or infinity in losses or gradients end the run; single ones are left out."""

    def check(self) -> None:
        if self.epochs is not None and self.steps is not None:
            raise FieldError(("steps",), f"give epochs ({self.epochs}) or steps ({self.steps}), not both")
        if self.batch is not None and self.total_batch is not None:
            raise FieldError(
                ("total_batch",),
                f"give batch ({self.batch}, of each node) or total_batch ({self.total_batch}), not both",
            )
        if self.seed >= 1 << 31:
            raise FieldError(("seed",), f"should be below {1 << 31}, not {self.seed}")
        if self.learning_rate is not None and not 0 < self.learning_rate < math.inf:
            finite = " and finite" if self.learning_rate == math.inf else ""
            raise FieldError(("learning_rate",), f"should be more than 0{finite}, not {self.learning_rate:g}")

    def evaluates_between(self, before: float, after: float) -> bool:
        """Whether an evaluation is due somewhere after `before` and up to `after`, both in epochs from the start."""
        if not self.evaluate_every:
            return False
        # What should be whole may be less by the last digit of a division.
        done, due = (math.floor(epochs / self.evaluate_every + 1e-9) for epochs in (before, after))
        return due > done


@dataclass(frozen=True, kw_only=True)
class Measuring(Config):
    """How the use of processor, memory, network and energy is measured."""

    kind = "measuring"

    interval_seconds: Annotated[Seconds, limits(0, 1_000_000)] = 0.5
    """Time between two samples (0: none are taken)."""

    idle_watts: Annotated[float, limits(0, 1_000_000)] = 5.0
    """Of a host that does nothing; only for estimates, where no energy counter can be read."""

    core_watts: Annotated[float, limits(0, 1_000_000)] = 10.0
    """What a busy core adds to that; only for estimates, where no energy counter can be read."""

    def check(self) -> None:
        if 0 < self.interval_seconds < 0.05:
            raise FieldError(("interval_seconds",), f"should be 0 or at least 0.05, not {self.interval_seconds:g}")


@dataclass(frozen=True, kw_only=True)
class Checkpoints(Config):
    """How often a run is kept in a form that it can go on from."""

    kind = "checkpoints"

    enabled: bool = True
    """Whether any are made."""

    every_seconds: Annotated[Seconds, limits(0)] = 60.0
    """Time between two checkpoints (0: not by time)."""

    every_steps: Annotated[int, limits(0)] = 0
    """Steps between two checkpoints (0: not by steps)."""

    keep: Annotated[int, limits(1)] = 2
    """How many of the last ones stay."""

    keep_best: bool = True
    """Also keep the one with the best metric at an evaluation, of strategies in lock step."""


@dataclass(frozen=True, kw_only=True)
class Experiment(Config):
    """Workload x cluster x strategy x seed."""

    kind = "experiment"

    workload: str
    """A built-in workload's name, or file.py:name."""

    strategy: Strategy | None = None
    """How replicas exchange what they learn (default: single on one node, adaptive on several, native on GPUs)."""

    data: str | None = None
    """The directory with data sets (default: MINGA_DATA, or where minga data fetch puts them)."""

    cluster: Cluster = field(default_factory=Cluster)
    """On what."""

    training: Training = field(default_factory=Training)
    """How long, with which batches, from which seed."""

    checkpoints: Checkpoints = field(default_factory=Checkpoints)
    """How often the run is kept in a form that it can go on from."""

    measuring: Measuring = field(default_factory=Measuring)
    """How the use of processor, memory, network and energy is measured."""

    runs: str = "runs"
    """Where run directories go."""

    def check(self) -> None:
        strategy = self.chosen_strategy
        check_nodes(strategy, self.cluster.nodes)
        if self.cluster.device == "cuda" and not strategy.traits.runs_on_gpus:
            raise FieldError(("cluster", "device"), "on GPUs only 'single' and 'native' are supported so far")
        if self.cluster.device == "cuda" and self.in_lab:
            raise FieldError(
                ("cluster", "device"), "GPUs of one machine exchange data past any network; a lab is for device = cpu"
            )
        if self.cluster.transport == "tcp" and self.cluster.device == "cuda":
            raise FieldError(("cluster", "transport"), "tcp is not for GPUs yet; use gloo")
        if len(self.cluster.cpu) not in (0, 1, self.cluster.nodes, self.hosts):
            sizes = sorted({1, self.cluster.nodes, self.hosts})
            raise FieldError(
                ("cluster", "cpu"), f"should have {' or '.join(map(str, sizes))} values, not {len(self.cluster.cpu)}"
            )
        if self.cluster.network is not None:
            try:
                self.cluster.network.check_hosts(self.hosts)
            except FieldError as error:
                raise error.inside("network").inside("cluster") from None

    @property
    def chosen_strategy(self) -> Strategy:
        """The strategy, or the one that is meant where none is given."""
        if self.strategy is not None:
            return self.strategy
        if self.cluster.nodes == 1:
            return Single()
        # On GPUs, links are those of a data centre, and NCCL's all-reduce uses them best.
        return AllReduce() if self.cluster.device == "cuda" else Adaptive()

    @property
    def ranks(self) -> int:
        """Workers and servers."""
        return self.cluster.nodes + self.chosen_strategy.traits.servers

    @property
    def hosts(self) -> int:
        """Machines: one for each worker, and one for each server that does not live beside a worker."""
        strategy = self.chosen_strategy
        return self.cluster.nodes + (0 if strategy.traits.servers_beside_workers else strategy.traits.servers)

    def host_of(self, rank: int) -> int:
        """The number of the host that a rank lives on, counted from 0: its own, or that of the worker beside it."""
        beside = self.chosen_strategy.traits.servers_beside_workers and rank >= self.cluster.nodes
        return rank - self.cluster.nodes if beside else rank

    def cpu_of(self, host: int) -> float | None:
        """Cores' worth of time of the host with this number, counted from 0 (None: no limit)."""
        shares = self.cluster.cpu
        if len(shares) == 1:
            return shares[0]
        return shares[host] if host < len(shares) else None

    @property
    def transport(self) -> str:
        """What carries messages: as asked for, or what fits."""
        if self.cluster.transport is not None:
            return self.cluster.transport
        return "gloo" if self.chosen_strategy.traits.backend_collectives or self.cluster.device == "cuda" else "tcp"

    @property
    def elastic(self) -> bool:
        """Whether ranks may go and come while it runs."""
        return TRANSPORTS[self.transport].join is None and self.ranks > 1

    @property
    def in_lab(self) -> bool:
        """Whether it runs on hosts of a lab: with a network or shares of the CPU of their own."""
        return self.cluster.network is not None or bool(self.cluster.cpu) or self.cluster.pin

    def to_toml(self) -> str:
        """The experiment as TOML, which `load` reads back to an equal one."""
        return tomli_w.dumps(_table(self))


def _table(config: Config) -> dict[str, Any]:
    table: dict[str, Any] = {}
    for entry in dataclasses.fields(config):  # type: ignore[arg-type]
        value = getattr(config, entry.name)
        if isinstance(value, Named):
            table[entry.name] = describe(value)
        elif isinstance(value, Config):
            table[entry.name] = _table(value)
        elif isinstance(value, dict):
            if value:
                table[entry.name] = {key: _table(item) for key, item in value.items()}
        elif isinstance(value, tuple):
            table[entry.name] = list(value)
        elif value is not None:
            table[entry.name] = value
    return table


def load(path: Path) -> Experiment:
    """Read an experiment from a TOML file; errors name the place in it."""
    return load_config(Experiment, path)


def with_codec(experiment: Experiment, codec: str | None) -> Experiment:
    """The experiment with another codec in its strategy."""
    if codec is None:
        return experiment
    changed: dict[str, Any] = {"codec": codec}  # a string, which the strategy's own check turns into a codec
    return dataclasses.replace(experiment, strategy=dataclasses.replace(experiment.chosen_strategy, **changed))


def with_overrides(experiment: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of a table with values at dotted paths replaced: {"training.seed": 3}."""
    changed: dict[str, Any] = copy.deepcopy(dict(experiment))
    for path, value in overrides.items():
        *outer, last = path.split(".")
        table = changed
        for name in outer:
            inner = table.setdefault(name, {})
            if not isinstance(inner, dict):
                # `strategy = "ps:..."` is a string, so strategy.servers has no table to go into.
                raise ConfigError(f"{path}: {name} is {inner!r}, which has no fields to set; write it there")
            table = inner
        table[last] = value
    return changed
