"""Runs the faults one after the other, and says what became of each.

    for outcome in Drill(folder, seed=0).run(catalogue()): print(outcome)

Everything random (when, and who) is decided by the seed. Each trial has a deadline; whoever hangs has failed.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from drills.catalogue import TORCHRUN
from drills.fault import Fault
from drills.job import Hang, Job, Setting, Spoiled
from drills.outcome import Outcome, measure
from drills.torchrun import torchrun_after_a_kill
from minga.errors import LabError, MingaError
from minga.lab.limits import check_rights
from minga.measure.events import Evaluated

__all__ = ["Drill"]

_UNDISTURBED_SECONDS = 400.0


class Drill:
    """One pass through some faults."""

    def __init__(self, folder: Path, *, seed: int = 0, told: Callable[[str], None] = lambda words: None) -> None:
        """`folder`: where the runs go; `told` hears what is done next."""
        self._folder = folder
        self._seed = seed
        self._told = told
        self._accuracies: dict[Setting, float] = {}

    def run(self, faults: Iterable[Fault], trials: int | None = None) -> Iterator[Outcome]:
        for fault in faults:
            for trial in range(trials or fault.trials):
                yield self._try(fault, trial)
                if fault.unsupported:
                    break

    def _try(self, fault: Fault, trial: int) -> Outcome:
        skipped = fault.unsupported or (_no_lab() if fault.needs_lab else "")
        if skipped:
            return Outcome(fault=fault.name, trial=trial, survived=False, skipped=skipped)
        began = time.monotonic()
        dice = random.Random(f"{self._seed} {fault.name} {trial}")
        try:
            undisturbed = self._undisturbed(fault.setting) if fault.compared else None
            self._told(f"{fault.words} (trial {trial + 1})")
            with Job(
                self._folder / f"{fault.name}-{trial}", fault.setting, deadline_seconds=fault.deadline_seconds
            ) as job:
                fault.harm(job, dice)
                code = job.finish()
                found = measure(job, fault.name, trial, code, undisturbed)
                if fault.promise.lost_steps is None:
                    found["lost_steps"] = None
        except Spoiled as spoiled:
            return Outcome(fault=fault.name, trial=trial, survived=False, skipped=str(spoiled))
        except Hang as hang:
            words = f"hangs: {hang}"
            found = {"fault": fault.name, "trial": trial, "survived": False, "problem": words}
        except Exception as error:  # of the script, not of the run; the other faults are still to be tried
            words = f"the drill itself failed: {type(error).__name__}: {error}"
            found = {"fault": fault.name, "trial": trial, "survived": False, "problem": words}
        seconds = time.monotonic() - began
        return Outcome(**found, seconds=seconds, broken=fault.promise.broken(found))

    def _undisturbed(self, setting: Setting) -> float | None:
        """The accuracy without a fault, of as many steps of as many nodes; measured once, and at full speed."""
        plain = Setting(strategy=setting.strategy, nodes=setting.nodes, steps=setting.steps, pause_seconds=0)
        if plain not in self._accuracies:
            self._told(f"undisturbed, {setting.strategy}, {setting.nodes} nodes, {setting.steps} steps")
            folder = self._folder / f"undisturbed-{len(self._accuracies)}"
            with Job(folder, plain, deadline_seconds=_UNDISTURBED_SECONDS) as job:
                assert job.run
                code = job.finish()
                if code:
                    raise Hang(f"even undisturbed it ended with exit code {code}: {job.last_words()}")
                evaluated = job.log.of(Evaluated)
                self._accuracies[plain] = evaluated[-1].event.metrics["accuracy"]
        return self._accuracies[plain]

    def torchrun(self, trial: int = 0) -> Outcome:
        """The same kill under torchrun, for comparison; nothing is promised."""
        setting = Setting()
        began = time.monotonic()
        dice = random.Random(f"{self._seed} {TORCHRUN} {trial}")
        outcome = Outcome(fault=TORCHRUN, trial=trial, survived=False)
        try:
            undisturbed = self._undisturbed(setting)
            self._told(f"torchrun (trial {trial + 1})")
            found = torchrun_after_a_kill(self._folder / f"{TORCHRUN}-{trial}", setting, dice, 180)
            outcome = replace(outcome, **found, undisturbed=undisturbed)
        except MingaError as error:
            outcome = replace(outcome, problem=str(error))
        return replace(outcome, seconds=time.monotonic() - began)


def _no_lab() -> str:
    try:
        check_rights()
    except LabError as error:
        return str(error)
    return ""
