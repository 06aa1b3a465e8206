"""The short drill: real faults done to real runs, and every promise kept."""

from __future__ import annotations

import pytest

from drills.catalogue import short_catalogue
from drills.drill import Drill
from drills.fault import Fault

pytestmark = pytest.mark.chaos


@pytest.fixture(scope="module")
def drill(tmp_path_factory: pytest.TempPathFactory) -> Drill:
    return Drill(tmp_path_factory.mktemp("drill"))


# Others join in tests/launch too; there they are not measured.
FAULTS = [
    pytest.param(fault, id=fault.name, marks=[pytest.mark.slow] if fault.name == "join" else [])
    for fault in short_catalogue()
]


@pytest.mark.parametrize("fault", FAULTS)
def test_what_is_promised_is_kept(drill: Drill, fault: Fault) -> None:
    (outcome,) = drill.run([fault], trials=1)
    assert outcome.survived, outcome.problem
    assert outcome.broken == []
