"""Every command of the registry: one line of help, an example that can be typed, `--json`, a page that mentions it."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from surface import commands, names_of

from minga.cli.commands import COMMANDS, Command

ROOT = Path(__file__).parents[2]
# Made from the registry, so what it mentions says nothing.
MADE = "reference.md"
PAGES = [ROOT / "README.md", *(page for page in (ROOT / "docs").rglob("*.md") if page.name != MADE)]
PRINTS_NO_RESULT = {"lab shell": "what it prints is what the shell or the command on the host does"}
BUILT = {name: command for name, command in commands() if isinstance(COMMANDS[name], Command)}


@pytest.fixture(scope="module")
def pages() -> str:
    return "\n".join(page.read_text() for page in PAGES)


def test_all_of_the_registry_is_there() -> None:
    assert [name for name, _ in commands()] == list(COMMANDS)


@pytest.mark.parametrize("name", BUILT)
def test_it_has_one_line_of_help_and_examples_that_can_be_typed(name: str) -> None:
    command = BUILT[name]
    first, *rest = command.help.split("\n\n")
    assert "\n" not in first and first.endswith("."), "the first line stands in lists"
    examples = [line.strip() for line in command.help.splitlines() if line.strip().startswith("minga ")]
    assert any(re.fullmatch(r"Examples?:", part) for part in rest) and examples
    options = {option for parameter in command.params for option in names_of(parameter)}
    for example in examples:
        words = shlex.split(example.partition("  #")[0])[1:]
        assert words[: len(name.split())] == name.split()
        if not COMMANDS[name].settings:  # type: ignore[union-attr]  # otherwise some belong to another program
            given = {word.partition("=")[0] for word in words if word.startswith("-")}
            assert given <= options, f"{example}: there is no {given - options}"


@pytest.mark.parametrize("name", BUILT)
def test_every_option_says_what_it_is_for(name: str) -> None:
    for parameter in BUILT[name].params:
        assert parameter.help, names_of(parameter)


@pytest.mark.parametrize("name", BUILT)
def test_what_it_prints_is_also_there_for_machines(name: str) -> None:
    has_json = any("--json" in names_of(parameter) for parameter in BUILT[name].params)
    assert has_json != (name in PRINTS_NO_RESULT)


@pytest.mark.parametrize("name", BUILT)
def test_a_page_mentions_it(pages: str, name: str) -> None:
    assert re.search(rf"minga {name}\b", pages), f"no page of docs/ and no README mentions minga {name}"


def test_without_arguments_it_acts_or_shows_help(minga: Any) -> None:
    for name, entry in COMMANDS.items():
        if not isinstance(entry, Command) or not entry.bare:
            done = minga(*name.split())
            assert "Usage:" in done.stdout and done.returncode in (0, 2), name


def test_help_and_lists_and_descriptions_need_no_torch(tmp_path: Path) -> None:
    """It takes seconds to import. And a command imports no other one."""
    (tmp_path / "experiment.toml").write_text(
        'workload = "digits"\nstrategy = "ps:mode=ssp,staleness=2,servers=2,codec=half"\n[cluster]\nnodes = 2\n'
    )
    program = f"""
import sys
from pathlib import Path
from minga.cli.main import application

def call(*words):
    try:
        application(words, standalone_mode=False)
    except SystemExit:
        pass
    assert "torch" not in sys.modules, words

call("doctor", "--help")
assert "minga.cli.doctor" in sys.modules and "minga.cli.train" not in sys.modules
call("--help")
assert "minga.runs.experiment" not in sys.modules
for name in {list(COMMANDS)!r}:
    call(*name.split(), "--help")
call("strategies")
call("strategies", "--json")
from minga.runs.experiment import load
load(Path("experiment.toml")).to_toml()
assert "torch" not in sys.modules and "numpy" not in sys.modules
call("workloads")
call("bench", "--list")
call("data", "list")
"""
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=True, stdout=subprocess.DEVNULL)


def test_the_launcher_of_a_run_needs_no_torch(tmp_path: Path) -> None:
    """Its ranks do: it would start them a second later, and hold 200 MB beside them."""
    program = """
import sys
from minga.cli.main import application
try:
    application(["train", "digits", "--nodes", "2", "--steps", "2", "--json"], standalone_mode=False)
except SystemExit as leaving:
    assert not leaving.code
assert "torch" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=True, stdout=subprocess.DEVNULL)
