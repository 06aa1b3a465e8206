"""A data set of four times the memory trains, in a control group that has no more."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "bigger_than_memory.py"


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_four_times_the_memory_is_trained_on(tmp_path: Path) -> None:
    command = [sys.executable, str(BENCHMARK), "--limit-megabytes", "600", "--json", "--place", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    if "no control group" in done.stderr:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stderr
    row = json.loads(done.stdout)
    assert row["in memory"] == "killed"  # so the limit is real
    assert row["data MB"] >= 4 * row["limit MB"] and row["peak MB"] <= row["limit MB"] * 1.001
    assert row["samples"] == 4 * (600 << 20) // (3 * 96 * 96) + 1  # each once
    assert row["read from disk / data"] < 1.2  # nothing that is dropped again before it was used
    assert row["accuracy"] > 0.9
