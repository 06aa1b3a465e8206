"""Deliberate breaks: small faults put into a copy of the package, one at a time, and the tests that must turn red.

    python tests/breaks.py               # all of them: some seconds each
    python tests/breaks.py ring owed     # those whose name contains one of these words
    python tests/breaks.py --list

Tests that stay green whatever the code does show nothing. A break whose place is not found, exactly once, has failed
too: somebody has changed that code, and says here what it would mean to break it now.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True, kw_only=True)
class Break:
    """A fault, and who notices it."""

    name: str
    room: str
    """A folder of the package, in any of whose files the place may be."""
    place: str
    """A regular expression for the code that is broken; it matches once in the whole room."""
    fault: str
    """What stands there instead, with groups as in `re.sub`."""
    tests: tuple[str, ...]
    """What is given to pytest: files or folders, and `-k` with words."""


BREAKS = (
    Break(
        name="a megabit is as much as a kilobit",
        room="base",
        place=r'"mbit": 1e6',
        fault='"mbit": 1e3',
        tests=("tests/base", "-k", "units or bandwidth"),
    ),
    Break(
        name="what a codec leaves out is not owed any more",
        room="codecs",
        place=r"(\w+)\.sub_\(sent\)",
        fault=r"\1.zero_()",
        tests=("tests/codecs", "-k", "owed"),
    ),
    Break(
        name="the mean is a sum: the divisor is dropped",
        room="codecs",
        place=r"vector / ranks if self\.changes_form else vector\.div_\(ranks\)",
        fault="vector",
        tests=("tests/strategies/test_conformance.py", "-k", "TestRing and n_workers"),
    ),
    Break(
        name="a ring passes what it has, but does not add it",
        room="comm/collectives",
        place=r"(if hop < ranks - 1:\s+)piece\.add_\(space\)",
        fault=r"\1piece.copy_(space)",
        tests=("tests/comm/test_collectives.py", "-k", "Ring or ring"),
    ),
    Break(
        name="messages in the simulator take no time on their way",
        room="comm/simulated",
        place=r"delay, (\w+)\.round_trip = there, there \+ back",
        fault=r"delay, \1.round_trip = 0.0, there + back",
        tests=("tests/comm/test_simulated.py",),
    ),
    Break(
        name="whose work was merged is forgotten with the next exchange",
        room="model",
        place=r"known = self\._known\(slice\(start, stop\)\)",
        fault="known = [self._start] * self._ranks",
        tests=("tests/model/test_merged_steps.py",),
    ),
    Break(
        name="gradients are not clipped",
        room="model",
        place=r"self\.clipping\.apply\(",
        fault="list(",
        tests=("tests/model/test_clipping.py",),
    ),
    Break(
        name="samples of an uneven share count as much as others",
        room="strategies",
        place=r"bucket\.gradients\.mul_\(replica\.info\.weight\)",
        fault="pass",
        tests=("tests/strategies/test_all_reduce.py",),
    ),
    Break(
        name="local steps never end in an average",
        room="strategies",
        place=r"(def finish\(self, [^)]*\) -> None:\s+)self\._end_local_steps\(replica, comm\)",
        fault=r"\1pass",
        tests=("tests/strategies/test_conformance.py", "-k", "TestLocal and all_workers_agree"),
    ),
    Break(
        name="what a lost rank had been given does not come again",
        room="training",
        place=r"order\.owed = owed \+ order\.owed",
        fault="order.owed = order.owed",
        tests=("tests/strategies/test_conformance.py", "-k", "TestLocal and lost_rank"),
    ),
    Break(
        name="the smaller side of a split network goes on",
        room="membership",
        place=r"if survivors >= len\(silent\):",
        fault="if True:",
        tests=("tests/membership/test_roster.py",),
    ),
    Break(
        name="the last sample of each rank's share is left out",
        room="data",
        place=r"return _cut\(stretches, total \* rank // workers, total \* \(rank \+ 1\) // workers\)",
        fault="return _cut(stretches, total * rank // workers, total * (rank + 1) // workers - 1)",
        tests=("tests/data/test_order.py",),
    ),
    Break(
        name="power counts whether anybody trains or not",
        room="measure",
        place=r"joules \+= sample\.watts \* inside",
        fault="joules += sample.watts * sample.seconds",
        tests=("tests/measure/test_energy.py",),
    ),
    Break(
        name="the mean error is the sum of errors",
        room="metrics",
        place=r"(class Mean\(Metric\).*?)return float\(state\[0\] / state\[1\]\)",
        fault=r"\1return float(state[0])",
        tests=("tests/metrics/test_metrics.py",),
    ),
    Break(
        name="a run in which a rank fails is said to have come to a good end",
        room="launch",
        place=r"self\._failed\[(\w+)\.name\] = \1\.code",
        fault="pass",
        tests=("tests/launch/test_exit_codes.py", "-k", "who_fails"),
    ),
    Break(
        name="errors of the command line are exit code 0",
        room="cli",
        place=r"sys\.exit\(2 if isinstance\(error, UsageError\)",
        fault="sys.exit(0 if isinstance(error, UsageError)",
        tests=("tests/cli/test_train.py", "-k", "errors_say"),
    ),
    Break(
        name="the median of repetitions is the first of them",
        room="report",
        place=r"median = statistics\.median\(known\)",
        fault="median = known[0]",
        tests=("tests/report/test_dataset.py",),
    ),
)


def source_of(each: Break, package: Path) -> Path:
    """The file with the place; `ValueError` if there is none, or more than one place."""
    found = [
        file
        for file in sorted((package / each.room).rglob("*.py"))
        for _ in re.finditer(each.place, file.read_text(), re.DOTALL if ".*?" in each.place else 0)
    ]
    if len(found) != 1:
        raise ValueError(f"{each.name}: {each.place!r} is found {len(found)} times in {each.room}/, not once")
    return found[0]


def break_it(each: Break, package: Path) -> Path:
    file = source_of(each, package)
    text = file.read_text()
    broken = re.sub(each.place, each.fault, text, count=1, flags=re.DOTALL if ".*?" in each.place else 0)
    assert broken != text
    compile(broken, str(file), "exec")
    file.write_text(broken)
    return file


def turns_red(each: Break) -> str:
    """What the tests say: "" if they notice nothing."""
    with tempfile.TemporaryDirectory(prefix="minga-broken-") as folder:
        copy = Path(folder) / "src"
        shutil.copytree(ROOT / "src", copy, ignore=shutil.ignore_patterns("__pycache__"))
        break_it(each, copy / "minga")
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-x", "-q", "-n", "0", "-p", "no:cacheprovider", "--no-header",
             "-m", "not slow", *each.tests],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(copy)},
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )  # fmt: skip
    red = [line for line in done.stdout.splitlines() if line.startswith("FAILED ")]
    if done.returncode not in (0, 1) or (done.returncode == 1 and not red):  # nothing to run, or it can't be imported
        raise ValueError(f"{each.name}: the tests can't tell\n{done.stdout[-2000:]}{done.stderr[-1000:]}")
    return red[0] if red else ""


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description="Break the package on purpose; each time, tests must turn red.")
    parser.add_argument("words", nargs="*", help="only breaks whose name contains one of these")
    parser.add_argument("--list", action="store_true", help="what is broken, and who should notice")
    asked = parser.parse_args(words)
    chosen = [each for each in BREAKS if not asked.words or any(word in each.name for word in asked.words)]
    unnoticed = 0
    for each in chosen:
        if asked.list:
            print(f"{each.room:16} {each.name}  ({' '.join(each.tests)})")
            continue
        began = time.monotonic()
        try:
            red = turns_red(each)
        except ValueError as error:
            red, told = "", f"FAILED: {error}"
        else:
            told = (
                f"red, as it should: {red.split(' - ')[0].removeprefix('FAILED ')}" if red else "FAILED: nobody notices"
            )
        unnoticed += not red
        print(f"{each.room}: {each.name}\n    {told}  ({time.monotonic() - began:.0f} s)", flush=True)
    return 1 if unnoticed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
