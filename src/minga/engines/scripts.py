"""`minga launch script.py`: a user's own script on several processes, and what came of it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from minga.errors import ConfigError
from minga.launch.scripts import check_script, launch_script
from minga.report.summary import Summary, summarise
from minga.runs.directory import make_run_directory
from minga.runs.experiment import Experiment

__all__ = ["run_script"]


def run_script(experiment: Experiment, script: Path, arguments: Sequence[str], *, show: bool) -> Summary | None:
    """Run the script on every rank; what came out, or None if it never joined. `show`: print rank 0's output."""
    if not script.is_file():
        raise ConfigError(f"there is no script {str(script)!r}; give a Python file that calls minga.join()")
    check_script(experiment, "script")
    run = make_run_directory(experiment)
    launch_script(experiment, run, script, arguments, show=show)
    return summarise(run)
