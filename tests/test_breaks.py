"""The deliberate breaks of `breaks.py` still have a place in the code, and tests that they are shown to."""

from __future__ import annotations

import pytest

from breaks import BREAKS, ROOT, Break, source_of


@pytest.mark.parametrize("each", BREAKS, ids=lambda each: each.name)
def test_a_break_has_one_place_and_tests(each: Break) -> None:
    source_of(each, ROOT / "src" / "minga")
    assert (ROOT / each.tests[0]).exists()
