"""The paced digits, with a worker of parameter servers that dies when its update is sent and not yet answered.

    minga train unacknowledged.py:workload --nodes 3 --strategy ps:servers=2

The environment variable MINGA_CHAOS_DEADLY names a file with the id of the process that is to die so.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

from drills import paced
from minga.runs.workload import Workload
from minga.strategies.parameter_server.strategy import ParameterServer

__all__ = ["POSSIBLE", "workload"]

DEADLY_VARIABLE = "MINGA_CHAOS_DEADLY"
POSSIBLE = hasattr(ParameterServer, "_pull")
# So long a server has for the update of somebody who will not hear its answer.
_SERVED_SECONDS = 0.1


def workload() -> Workload:
    file = os.environ.get(DEADLY_VARIABLE)
    if file is not None and POSSIBLE:
        _die_before_answers(Path(file))
    return paced.workload()


def _die_before_answers(file: Path) -> None:
    strategy: Any = ParameterServer  # what is done here is not meant to be done
    pull = strategy._pull

    def pull_or_die(self: ParameterServer, *arguments: Any) -> None:
        if file.is_file() and file.read_text(encoding="ascii") == str(os.getpid()):
            time.sleep(_SERVED_SECONDS)
            os.kill(os.getpid(), signal.SIGKILL)
        pull(self, *arguments)

    strategy._pull = pull_or_die
