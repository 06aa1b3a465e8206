"""What the documentation tells people to run does run."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from minga.base.user_files import load_from_file
from minga.strategies import Strategy
from minga.testing import DeterministicStrategyConformance

EXAMPLES = Path(__file__).parents[1] / "examples"


class TestElasticAveraging(DeterministicStrategyConformance):
    def make(self) -> Strategy:
        strategy: Strategy = load_from_file(f"{EXAMPLES}/own_strategy.py:ElasticAveraging")(period=4)
        return strategy


def minga(*arguments: str, cwd: Path) -> dict[str, object]:
    done = subprocess.run(
        [sys.executable, "-m", "minga", *arguments, "--json"], cwd=cwd, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    result: dict[str, object] = json.loads(done.stdout)
    return result


def test_a_strategy_from_a_file(tmp_path: Path) -> None:
    spec = f"{EXAMPLES}/own_strategy.py:ElasticAveraging:period=4"
    result = minga("train", "digits", "--nodes", "2", "--strategy", spec, "--epochs", "4", cwd=tmp_path)
    assert float(str(result["accuracy"])) > 0.85


def test_a_workload_from_a_file(tmp_path: Path) -> None:
    workload = f"{EXAMPLES}/own_workload.py:workload"
    result = minga("train", workload, "--nodes", "2", "--strategy", "ring", cwd=tmp_path)
    assert float(str(result["accuracy"])) > 0.9


def test_a_training_loop_of_ones_own_alone_and_on_several_nodes(tmp_path: Path) -> None:
    script = str(EXAMPLES / "own_loop.py")
    alone = subprocess.run([sys.executable, script], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert "rank 0 of 1: accuracy 0.9" in alone.stdout, alone.stderr
    for strategy in ("ring", "switch:at=20,mode=ssp"):
        together = subprocess.run(
            [sys.executable, "-m", "minga", "launch", "--nodes", "3", "--strategy", strategy, script, "--epochs", "4"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert together.returncode == 0, together.stderr
        assert "rank 0 of 3: accuracy 0." in together.stdout


def test_the_own_strategy_is_about_twenty_lines() -> None:
    """The promise that a new algorithm is small."""
    code = (EXAMPLES / "own_strategy.py").read_text().split("@dataclass", 1)[1]
    assert len([line for line in code.splitlines() if line.strip()]) <= 22
