"""The short drill: real faults done to real runs, and every promise kept."""

from __future__ import annotations

import pytest

from minga.chaos.catalogue import short_catalogue
from minga.chaos.drill import Drill
from minga.chaos.fault import Fault

pytestmark = pytest.mark.chaos


@pytest.fixture(scope="module")
def drill(tmp_path_factory: pytest.TempPathFactory) -> Drill:
    return Drill(tmp_path_factory.mktemp("drill"))


@pytest.mark.parametrize("fault", short_catalogue(), ids=lambda fault: str(fault.name))
def test_what_is_promised_is_kept(drill: Drill, fault: Fault) -> None:
    (outcome,) = drill.run([fault], trials=1)
    assert outcome.survived, outcome.problem
    assert outcome.broken == []
