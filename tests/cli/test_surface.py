"""What people could type once goes on working, and a page has all of it."""

from __future__ import annotations

import json
from pathlib import Path

from surface import fields_by_path, reference, surface

from minga.cli.options import EXPERIMENT_OPTIONS
from minga.runs.experiment import Experiment

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "reference.md"
BEFORE = json.loads((HERE / "surface_before.json").read_text())
# Deliberate changes: the old name, and what takes its place.
RENAMED: dict[str, str] = {}


def test_everything_that_could_be_typed_still_can() -> None:
    now = surface()
    for command, parameters in BEFORE["commands"].items():
        there = now["commands"][RENAMED.get(command, command)]
        for name, kind in parameters.items():
            found = there.get(RENAMED.get(f"{command} {name}", name))
            assert found is not None, f"{command} {name}"
            assert found.split(",")[0] == kind.split(",")[0], f"{command} {name} takes something else"
            assert "required" in kind or "required" not in found, f"{command} {name} could be left out"
    for family in ("strategies", "codecs"):
        for name, fields in BEFORE[family].items():
            there = now[family][RENAMED.get(name, name)]
            assert {RENAMED.get(f"{name}:{field}", field) for field in fields} <= set(there), name
    assert {RENAMED.get(name, name) for name in BEFORE["workloads"]} <= set(now["workloads"])


def test_the_page_for_people_is_what_the_code_says() -> None:
    assert PAGE.read_text() == reference() + "\n", (
        "make it anew: .venv/bin/python tests/cli/surface.py --reference > docs/reference.md"
    )


def test_options_set_fields_that_there_are() -> None:
    paths = {path for path, _, _ in fields_by_path(Experiment)}
    for name, option in EXPERIMENT_OPTIONS.items():
        assert option.path in paths | {"strategy.codec"}, name
