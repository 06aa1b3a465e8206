"""Many candidates at once: the same prices however many processes there are, and also when one of them is killed."""

from __future__ import annotations

import os
from typing import Any

import pytest

from minga.plan import pricing
from minga.plan.candidates import Candidate
from minga.plan.cluster import PlannedCluster
from minga.plan.pricing import Price, price_all
from minga.runs.network import Network
from minga.simulate.profile import Compute, Layer, Profile
from minga.strategies import Strategy

PROFILE = Profile(
    workload="made",
    layers=(Layer(name="only", shape=(10, 100)),),
    compute=(Compute(batch=8, forward=1e-3, backward=1e-3),),
    update_seconds=1e-4,
    samples=640,
    batch=8,
    spread=(0.9, 1.0, 1.3),
)
CLUSTER = PlannedCluster(nodes=3, network=Network(bandwidth="10mbit", delay="1ms"))  # type: ignore[arg-type]
SPECS = ["single", "ring", "tree", "local_sgd:period=4", "gossip", "ps:mode=async"]


def candidate(spec: str) -> Candidate:
    return Candidate(Strategy.from_value(spec), 1 if spec == "single" else 3, 8)


class Deadly(Candidate):
    """Whoever gets it from another process ends."""

    def __reduce__(self) -> Any:
        return os._exit, (9,)


@pytest.fixture(autouse=True)
def soon_worth_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pricing, "_WORTH_A_PROCESS", 2)


def test_processes_find_what_one_finds_and_tell_how_far_they_are() -> None:
    told: list[tuple[int, int]] = []
    candidates = [*(candidate(spec) for spec in SPECS), candidate("ring:codec=top_k")]  # of no codec's speed is known
    alone = price_all(candidates, PROFILE, CLUSTER)
    together = price_all(candidates, PROFILE, CLUSTER, processes=2, progress=lambda *numbers: told.append(numbers))
    assert together == alone
    assert [isinstance(each, Price) for each in together] == [True] * len(SPECS) + [False]
    assert "top_k" in str(together[-1])
    assert told[0] == (0, 7) and told[-1] == (7, 7) and told == sorted(told)


def test_what_a_killed_process_leaves_is_priced_here() -> None:
    usual = [candidate(spec) for spec in SPECS]
    deadly = [*usual[:3], Deadly(usual[3].strategy, 3, 8), *usual[4:]]
    found = price_all(deadly, PROFILE, CLUSTER, processes=2)
    assert [each.step_seconds for each in found if isinstance(each, Price)] == [
        each.step_seconds for each in price_all(usual, PROFILE, CLUSTER) if isinstance(each, Price)
    ]
    assert len(found) == len(usual)
