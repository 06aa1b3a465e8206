"""Nothing of a lab may be left."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from minga.lab import registry


@pytest.fixture
def no_lab_left(labs_possible: None) -> Iterator[None]:
    yield
    assert not [record.name for record in registry.records() if record.owner == os.getpid()]
