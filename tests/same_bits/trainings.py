"""Short trainings of `digits` in virtual time, one for each way of exchanging, and digests of what they learned.

    .venv/bin/python tests/same_bits/trainings.py                    # compare with this kind of machine's table
    .venv/bin/python tests/same_bits/trainings.py --write FILE       # write a table instead

The network and the devices are data (`digits.profile.json`), so messages arrive in the same order on every machine, and
the same seed gives the same bits. Processors of different kinds differ in last bits, so `digests/` has a table for each
kind, all made by the same revision. Only public entrances are used, so that any revision can run this.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import platform
import sys
from pathlib import Path
from typing import Any

import torch
from torch import nn

import minga
from minga.comm.simulated import Cable, Carrier, Wires
from minga.simulate.profile import load_profile
from minga.simulate.simulation import Simulation

HERE = Path(__file__).parent
TABLES = sorted((HERE / "digests").glob("*.json"), reverse=True)
STEPS, BATCH = 40, 8
SLOW = 0.4
"""The speed of the last worker's host: others have to wait for it, or don't."""
MOMENTUM = f"{HERE / 'momentum.py'}:digits_with_momentum"

STRATEGIES = {
    "single": 1,
    "allreduce": 3,
    "native": 3,
    "ring": 4,
    "tree": 4,
    "halving_doubling": 4,
    "halving_doubling:bucket_bytes=4096": 3,
    "mesh": 3,
    "direct": 2,
    "two_level": 3,
    "two_level:group_size=2": 4,
    "ring:bucket_bytes=4096": 3,
    "local_sgd:period=1": 3,
    "local_sgd:period=4": 4,
    "local_sgd:period=4,collective=tree": 3,
    "local_sgd:period=4,overlap=3": 3,
    "local_sgd:period=4,post_local=10": 3,
    "local_sgd:period=1,growth=2,growth_steps=10": 3,
    "local_sgd:period=8,growth=0.5,growth_steps=10,overlap=3": 3,
    "local_sgd:period=5,overlap=4,codec=(power_sgd:rank=1)": 3,
    "diloco:period=6": 3,
    "diloco:period=8,fragments=3,overlap=2,codec=int8": 3,
    "ps:mode=sync": 3,
    "ps:mode=sync,servers=2": 3,
    "ps:mode=sync,placement=beside": 3,
    "ps:mode=ssp,staleness=0": 3,
    "ps:mode=ssp,staleness=2": 4,
    "ps:mode=ssp,staleness=2,servers=2": 3,
    "ps:mode=async": 4,
    "ps:mode=async,servers=2": 3,
    "ps:mode=async,damping=none": 3,
    "switch:at=10,mode=sync": 3,
    "switch:at=20,mode=sync,servers=2": 3,
    "switch:at=10": 3,
    "switch:window=4,patience=1,improvement=0.3": 3,
    "gossip": 4,
    "gossip:overlap=false,graph=ring": 3,
    "gossip:graph=random,period=2,codec=bfloat16": 4,
    "gossip:graph=ring,codec=half": 3,
    "gossip:algorithm=push_sum": 4,
    "gossip:algorithm=push_sum,graph=random,overlap=false": 3,
    "gossip:algorithm=asynchronous": 4,
    "gossip:algorithm=asynchronous,graph=ring,codec=half": 3,
    "hierarchical": 3,
    "hierarchical:site_size=2": 4,
    "hierarchical:site_size=2,across=ring": 4,
    "hierarchical:site_size=2,across=(gossip:algorithm=push_sum,period=3)": 4,
    "hierarchical:site_size=2,across=(diloco:period=5,overlap=2)": 4,
    "hierarchical:site_size=2,across=(local_sgd:period=4,overlap=3,codec=(power_sgd:rank=1))": 4,
    "hierarchical:site_size=2,across=adaptive": 4,
    "adaptive": 4,
    "adaptive:codec=(int8:feedback=true,rounding=nearest)": 3,
    "adaptive:codec=(power_sgd:rank=1,factors=int8)": 3,
    "auto": 3,
    "probe": 2,
}
"""The nodes of each."""

CODECS = (
    "half",
    "bfloat16",
    "int8",
    "int8:feedback=true,rounding=nearest",
    "int4",
    "int4:feedback=false,rounding=stochastic",
    "sign",
    "sign:feedback=false",
    "top_k:ratio=0.1",
    "top_k:ratio=0.1,feedback=false",
    "top_k:ratio=0.1,selection=exact",
    "random_k:ratio=0.1",
    "random_k:ratio=0.1,feedback=false",
    "power_sgd",
    "power_sgd:rank=1,factors=int8",
    "power_sgd:rank=1,feedback=false",
)
WITH_MOMENTUM = ("top_k:ratio=0.1,momentum_correction=true", "random_k:ratio=0.1,momentum_correction=true")
CARRIERS = {"ring": 3, "ps:mode=sync": 3, "local_sgd:period=4": 3}
"""Strategies that every codec is used with, and their nodes."""

QUICK = (
    "single",
    "ring",
    "local_sgd:period=4,overlap=3",
    "diloco:period=8,fragments=3,overlap=2,codec=int8",
    "ps:mode=ssp,staleness=2",
    "switch:at=10",
    "gossip:algorithm=push_sum",
    "gossip:algorithm=asynchronous",
    "hierarchical:site_size=2",
    "adaptive",
    "ring:codec=(power_sgd)",
    "ps:mode=sync,codec=(top_k:ratio=0.1)",
)
"""What is looked at every time."""

MACHINES_OWN = ("auto",)
"""They measure this machine, and what they then do depends on it: in the table, and not compared by tests."""


def cases() -> dict[str, tuple[str, str, int]]:
    """By name: workload, strategy, nodes."""
    found = {name: ("digits", name, nodes) for name, nodes in STRATEGIES.items()}
    for strategy, nodes in CARRIERS.items():
        for codec in CODECS:
            whole = _with_codec(strategy, codec)
            found[whole] = ("digits", whole, nodes)
    for strategy in ("ring", "ps:mode=sync"):
        for codec in WITH_MOMENTUM:
            whole = _with_codec(strategy, codec)
            found[f"{whole} with SGD"] = (MOMENTUM, whole, 3)
    for strategy in ("ring", "local_sgd:period=4,overlap=3", "diloco:period=6", "ps:mode=sync,servers=2", "gossip"):
        found[f"{strategy} with SGD"] = (MOMENTUM, strategy, 3)
    return found


def load_tables() -> list[dict[str, Any]]:
    """The runs of each table."""
    return [json.loads(table.read_text(encoding="utf-8"))["runs"] for table in TABLES]


def table_of_this_machine() -> dict[str, Any] | None:
    """The one of a machine that computes the same bits, by a training without peers; None: there is none yet."""
    single = train("single")["digest"]
    return next((table for table in load_tables() if table["single"]["digest"] == single), None)


def _with_codec(strategy: str, codec: str) -> str:
    return f"{strategy}{',' if ':' in strategy else ':'}codec=({codec})"


def train(name: str) -> dict[str, Any]:
    """Train one, return what it has learned: a digest of every worker's parameters, and the loss of the first."""
    workload, strategy, nodes = cases()[name]
    experiment = minga.Experiment(
        workload=workload,
        strategy=strategy,  # type: ignore[arg-type]
        cluster=minga.Cluster(nodes=nodes),
        training=minga.Training(steps=STEPS, batch=BATCH, seed=0),
    )
    # The last host is farther away, so that few messages arrive at the same moment.
    cables = tuple(Cable(up=2.5e6, down=2.5e6, delay=0.002 + 0.0013 * host) for host in range(experiment.hosts))
    carrier = Carrier(send_seconds=3e-5, receive_seconds=4e-5, wake_seconds=5e-5)
    simulation = Simulation(
        experiment, load_profile(HERE / "digits.profile.json"), Wires(cables=cables, carrier=carrier)
    )
    simulation.world.hosts[nodes - 1].speed = SLOW if nodes > 1 else 1.0
    simulation.run()
    workers = [simulation.train_states[rank] for rank in range(nodes)]
    pictures, classes = workers[0].workload.test.tensors  # type: ignore[union-attr]
    digest = hashlib.sha256()
    for worker in workers:
        digest.update(worker.replica.parameters.detach().contiguous().numpy().tobytes())
    with torch.no_grad():
        loss = nn.functional.cross_entropy(workers[0].replica.model(pictures), classes)
    return {"digest": digest.hexdigest(), "loss": float(loss)}


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--write", type=Path)
    parser.add_argument("names", nargs="*")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    known = table_of_this_machine() or {}
    found: dict[str, Any] = {}
    different = 0
    for name in arguments.names or cases():
        found[name] = train(name)
        before = known.get(name)
        same = before is not None and before["digest"] == found[name]["digest"]
        different += not same
        mark = "same" if same else "NEW" if before is None else f"DIFFERS (loss was {before['loss']:.6f})"
        print(f"{found[name]['digest'][:12]}  {found[name]['loss']:.6f}  {name}  {mark}", flush=True)
    if arguments.write is not None:
        facts = {
            "command": "python tests/same_bits/trainings.py --write tests/same_bits/digests/FILE.json",
            "minga": f"{minga.__version__}, before the rooms were made (37ce36a)",
            "python": platform.python_version(),
            "torch": torch.__version__,
            "machine": f"{platform.system()} {platform.machine()}",
        }
        arguments.write.write_text(json.dumps({"made_by": facts, "runs": found}, indent=1) + "\n", encoding="utf-8")
        return 0
    print(f"{len(found)} trainings, {different} differ from the table")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
