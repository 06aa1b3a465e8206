"""One process of `minga launch`: a user's script, which calls `minga.join()`."""

from __future__ import annotations

import atexit
import runpy
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from minga.launch.rank import record_failure
from minga.measure.recorder import Recorder
from minga.runs.directory import event_file

__all__ = ["main"]


def main(arguments: Mapping[str, Any]) -> int:
    """Run the script as Python would; the exit code."""
    script = Path(arguments["script"])
    torch.set_num_threads(arguments["threads"])
    sys.argv = [str(script), *arguments["arguments"]]
    sys.path.insert(0, str(script.parent))
    try:
        runpy.run_path(str(script), run_name="__main__")
    except SystemExit:
        raise
    except BaseException as error:
        recorder = Recorder(event_file(Path(arguments["run"]), arguments["rank"]))
        record_failure(recorder, arguments["rank"], 0, error)
        recorder.close()
        return 1
    finally:
        atexit._run_exitfuncs()  # the process leaves by os._exit, which would pass them over
    return 0
