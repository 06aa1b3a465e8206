"""The strategies, by name: `minga strategies` lists them.

A new one is a file here and a line in `STRATEGIES`; outside the package it is used as `file.py:Class`.
"""

from __future__ import annotations

from minga.base.spec import Preset, register
from minga.strategies.adaptive import Adaptive
from minga.strategies.all_reduce import AllReduce
from minga.strategies.base import Strategy
from minga.strategies.diloco import DiLoCo
from minga.strategies.gossip import Gossip
from minga.strategies.hierarchical import Hierarchical
from minga.strategies.local_sgd import LocalSGD
from minga.strategies.parameter_server.strategy import ParameterServer
from minga.strategies.probe import Probe
from minga.strategies.single import Single
from minga.strategies.switch import Switch

__all__ = [
    "STRATEGIES",
    "Adaptive",
    "AllReduce",
    "DiLoCo",
    "Gossip",
    "Hierarchical",
    "LocalSGD",
    "ParameterServer",
    "Probe",
    "Single",
    "Strategy",
    "Switch",
]


def _all_reduce(collective: str, summary: str) -> Preset:
    fixed = {"collective": collective} | ({} if collective == "two_level" else {"group_size": 0})
    return Preset(AllReduce, fixed, f"Average gradients in every step, {summary}.")


STRATEGIES: dict[str, Preset] = {
    "single": Preset(Single),
    "allreduce": Preset(AllReduce),
    "native": _all_reduce("native", "with the backend's own all-reduce (gloo, NCCL)"),
    "ring": _all_reduce("ring", "around a ring: fewest bytes, most hops"),
    "tree": _all_reduce("tree", "up and down a binary tree: few hops, for short vectors"),
    "halving_doubling": _all_reduce("halving_doubling", "by recursive halving and doubling: few bytes, few hops"),
    "mesh": _all_reduce("mesh", "everybody with everybody: two hops, for few ranks on a switch"),
    "direct": _all_reduce("direct", "in one hop, everything to everybody: for two ranks and small models"),
    "two_level": _all_reduce("two_level", "inside each host first, then between hosts"),
    "ps": Preset(ParameterServer),
    "local_sgd": Preset(LocalSGD),
    "diloco": Preset(DiLoCo),
    "switch": Preset(Switch),
    "gossip": Preset(Gossip),
    "hierarchical": Preset(Hierarchical),
    "adaptive": Preset(Adaptive),
    "auto": Preset("minga.plan.auto:Auto"),  # which needs the simulator, and that all of these
    "probe": Preset(Probe),
}

register(Strategy, STRATEGIES)
