"""Results survive what happens to machines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from minga.errors import ConfigError
from minga.study.results import Result, Results


def result(repetition: int = 0, **changes: Any) -> Result:
    plain: dict[str, Any] = {
        "cell": "abc",
        "label": "2 nodes",
        "values": {"cluster.nodes": 2},
        "environment": None,
        "repetition": repetition,
        "state": "done",
        "error": None,
        "run": f"runs/{repetition}",
        "wall_seconds": 1.5,
    }
    return Result(**(plain | changes))


def test_what_was_appended_is_read_again(tmp_path: Path) -> None:
    file = tmp_path / "results.jsonl"
    for repetition in range(2):
        Results(file).append(result(repetition))
    assert Results(file).lines == [result(0), result(1)]


@pytest.mark.parametrize("left", [1, 20, -1])
def test_a_torn_last_line_is_cut_and_the_next_one_is_whole(tmp_path: Path, left: int) -> None:
    file = tmp_path / "results.jsonl"
    results = Results(file)
    results.append(result(0))
    results.append(result(1))
    first, second = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(first + second[:left])
    again = Results(file)
    assert again.lines == [result(0)]
    assert file.read_bytes() == first + second[:left]  # somebody who only looks changes nothing
    again.append(result(2))
    assert Results(file).lines == [result(0), result(2)]


def test_damage_in_the_middle_is_told_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "results.jsonl"
    Results(file).append(result())
    file.write_bytes(file.read_bytes() + b"{}\n" + file.read_bytes())
    with pytest.raises(ConfigError, match=r"results.jsonl, line 2: .*--fresh"):
        Results(file)


def test_the_last_word_counts_and_a_run_that_was_removed_counts_as_never_run(tmp_path: Path) -> None:
    results = Results(tmp_path / "results.jsonl")
    for repetition in (0, 1):
        (tmp_path / "runs" / str(repetition)).mkdir(parents=True)
    results.append(result(0, state="failed", error="no"))
    results.append(result(0))
    results.append(result(1))
    results.append(result(2))  # has no directory
    assert {key: line.state for key, line in results.latest().items()} == {("abc", 0): "done", ("abc", 1): "done"}


def test_a_line_of_a_later_version_is_read_too(tmp_path: Path) -> None:
    file = tmp_path / "results.jsonl"
    Results(file).append(result())
    file.write_text(file.read_text().replace('{"cell"', '{"colour": "red", "cell"'))
    assert Results(file).lines == [result()]
