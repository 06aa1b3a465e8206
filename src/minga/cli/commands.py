"""The commands, by name. A new one is a module with a function, and a line here; it is imported when it is called.

`tests/cli/test_commands.py` asks of each: one line of help, an example, `--json`, a page of docs/ that mentions it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["COMMANDS", "Command", "CommandGroup"]

TRAIN = "Train"
PREDICT = "Predict before training"
RESULTS = "Look at results, use what was learned"
LISTS = "What there is"
MACHINES = "Machines and networks"


@dataclass(frozen=True)
class Command:
    """A function whose docstring is the help and whose parameters are the options."""

    home: str
    """`package.module:function`."""
    panel: str = ""
    """The heading in help."""
    bare: bool = False
    """Whether it does something without any argument; otherwise that shows its help."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Of the parser: what belongs to another program is left to that."""


@dataclass(frozen=True)
class CommandGroup:
    """Commands of two words."""

    help: str
    panel: str


COMMANDS: dict[str, Command | CommandGroup] = {
    "train": Command("minga.cli.train:train", TRAIN),
    "compare": Command("minga.cli.compare:compare", TRAIN),
    "join": Command("minga.cli.join:join", TRAIN),
    "launch": Command("minga.cli.launch:launch", TRAIN, settings={"allow_interspersed_args": False}),
    "bench": Command("minga.cli.bench:bench", TRAIN),
    "plan": Command("minga.cli.plan:plan", PREDICT),
    "simulate": Command("minga.cli.simulate:simulate", PREDICT),
    "profile": Command("minga.cli.profile:profile", PREDICT),
    "probe": Command("minga.cli.probe:probe", PREDICT, bare=True),
    "report": Command("minga.cli.report:report", RESULTS),
    "checkpoints": Command("minga.cli.checkpoints:checkpoints", RESULTS),
    "caption": Command("minga.cli.caption:caption", RESULTS),
    "write": Command("minga.cli.write:write", RESULTS),
    "strategies": Command("minga.cli.lists:strategies", LISTS, bare=True),
    "workloads": Command("minga.cli.lists:workloads", LISTS, bare=True),
    "data": CommandGroup("Data sets: which there are, fetching, verifying, preparing them.", LISTS),
    "data list": Command("minga.cli.data:list_datasets", bare=True),
    "data fetch": Command("minga.cli.data:fetch"),
    "data verify": Command("minga.cli.data:verify"),
    "data prepare": Command("minga.cli.prepare:prepare"),
    "doctor": Command("minga.cli.doctor:doctor", MACHINES, bare=True),
    "lab": CommandGroup("Hosts with shaped links on this machine, to look around in.", MACHINES),
    "lab measure": Command("minga.cli.lab:measure", bare=True),
    "lab up": Command("minga.cli.lab:up", bare=True),
    "lab shell": Command("minga.cli.lab:shell", settings={"ignore_unknown_options": True}),
    "lab change": Command("minga.cli.lab:change"),
    "lab cut": Command("minga.cli.lab:cut"),
    "lab mend": Command("minga.cli.lab:mend"),
    "lab list": Command("minga.cli.lab:list_labs", bare=True),
    "lab clean": Command("minga.cli.lab:clean", bare=True),
    "cert": Command("minga.cli.cert:cert", MACHINES),
}
