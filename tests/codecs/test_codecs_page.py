"""The page about codecs names all of them, and its example is a codec."""

from __future__ import annotations

import json
from pathlib import Path

import torch

from minga.base.user_files import load_from_file
from minga.codecs import CODECS
from minga.testing import FeedbackCodecConformance

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "codecs.md").read_text()


def test_the_page_names_every_codec() -> None:
    assert not [name for name in CODECS if f"`{name}`" not in PAGE]


def test_the_example_passes_the_kit(tmp_path: Path) -> None:
    file = tmp_path / "ternary.py"
    file.write_text(PAGE.split("```python\n")[1].split("```")[0])
    codec = load_from_file(f"{file}:Ternary")()
    kit = type("Kit", (FeedbackCodecConformance,), {"make": lambda self: codec})()
    kit.test_any_length(1025, torch.float32)
    kit.test_zeros_stay_zeros(torch.float64)
    kit.test_what_is_not_sent_is_owed()
    kit.test_bytes_on_the_wire_from_rank_to_rank(torch.float32)
    kit.test_all_ranks_have_the_same_bits_and_send_what_is_promised(3)
    kit.test_differences_arrive_in_the_end()
    kit.test_it_can_be_written_and_read_as_a_string()
    kit.test_it_and_its_fields_are_documented()


def test_the_numbers_are_those_of_the_benchmark() -> None:
    rows = json.loads((ROOT / "benchmarks" / "results" / "codecs.json").read_text())["rows"]
    for codec in {row["codec"] for row in rows}:
        large, small = (row for row in rows if row["codec"] == codec)
        numbers = (
            f"| {large['encode, GB/s']:.1f} | {large['decode, GB/s']:.1f} | {small['times smaller']:.1f} "
            f"| {small['encode, ms']:.2f} | {small['decode, ms']:.2f} | {small['share of a step, %']:.1f} |"
        )
        assert f"| `{codec}` {numbers}" in PAGE
