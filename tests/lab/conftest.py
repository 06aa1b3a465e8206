"""Labs need rights that not every user has; and nothing of them may be left."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from minga.errors import LabError
from minga.lab import registry
from minga.lab.rights import check_rights


@pytest.fixture(scope="session")
def labs_possible() -> None:
    try:
        check_rights()
    except LabError as error:
        pytest.skip(str(error))


@pytest.fixture
def no_lab_left(labs_possible: None) -> Iterator[None]:
    yield
    assert not [record.name for record in registry.records() if record.owner == os.getpid()]
