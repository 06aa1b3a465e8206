"""The embedded digits at a steady pace, so that ranks on few cores are like machines of their own.

    minga train paced.py:workload --nodes 4

A file like a user's own: it is given to `minga train` by its path. For faults that a rank has to do to itself, the
environment variable MINGA_CHAOS_HUNGRY names a file with the id of a process that is to eat up its memory.
"""

from __future__ import annotations

import dataclasses
import os
import time
from pathlib import Path

from torch import Tensor

from minga.runs.workload import Workload
from minga.workloads.digits import digits
from minga.workloads.models import DigitsNet

__all__ = ["workload"]

PAUSE_VARIABLE = "MINGA_CHAOS_PAUSE_SECONDS"
HUNGRY_VARIABLE = "MINGA_CHAOS_HUNGRY"
_BITE_BYTES = 16 << 20


class PacedNet(DigitsNet):
    """A step takes at least some time, whoever else is on this machine."""

    def __init__(self) -> None:
        super().__init__()
        self._pause = float(os.environ.get(PAUSE_VARIABLE, "0"))
        self._hungry = os.environ.get(HUNGRY_VARIABLE)

    def forward(self, pictures: Tensor) -> Tensor:
        if self.training:
            time.sleep(self._pause)
            if self._hungry is not None:
                _eat_if_told(Path(self._hungry))
        outputs: Tensor = super().forward(pictures)  # type: ignore[no-untyped-call]
        return outputs


def _eat_if_told(file: Path) -> None:
    try:
        told = file.read_text(encoding="ascii")
    except OSError:
        return
    eaten = []
    while told == str(os.getpid()):
        eaten.append(b"\xff" * _BITE_BYTES)  # until the kernel has had enough


def workload() -> Workload:
    return dataclasses.replace(digits(), name="paced digits", model=PacedNet)
