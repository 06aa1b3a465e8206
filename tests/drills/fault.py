"""A fault: what is trained, what is done to it, and what is promised then."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from drills.job import Job, Setting
from drills.promises import Promise

__all__ = ["Fault", "Harm"]

Harm = Callable[[Job, random.Random], None]
"""Harms a running job. It calls `job.harm(...)` right after the deed, and returns when all of it is done."""


@dataclass(frozen=True, kw_only=True)
class Fault:
    """One line of the table."""

    name: str
    """As in `--only`."""
    words: str
    """For people."""
    harm: Harm
    setting: Setting = field(default_factory=Setting)
    promise: Promise = field(default_factory=Promise)
    deadline_seconds: float = 120.0
    """Of a trial; longer is a hang."""
    trials: int = 1
    needs_lab: bool = False
    unsupported: str = ""
    """Why it can't be survived yet; it is listed, and not tried."""
    compared: bool = True
    """Whether its accuracy is compared with that of an undisturbed run."""
