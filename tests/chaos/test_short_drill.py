"""The short drill: real faults done to real runs, and every promise kept."""

from __future__ import annotations

import pytest

from minga.chaos.catalogue import catalogue
from minga.chaos.drill import Drill

pytestmark = pytest.mark.chaos

SHORT = [fault for fault in catalogue(heartbeat_timeout_seconds=2.0) if fault.short]


@pytest.fixture(scope="module")
def drill(tmp_path_factory: pytest.TempPathFactory) -> Drill:
    return Drill(tmp_path_factory.mktemp("drill"))


@pytest.mark.parametrize("fault", SHORT, ids=lambda fault: str(fault.name))
def test_what_is_promised_is_kept(drill: Drill, fault: object) -> None:
    (outcome,) = drill.run([fault], trials=1)  # type: ignore[list-item]
    assert outcome.survived, outcome.problem
    assert outcome.broken == []
