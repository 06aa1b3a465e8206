"""Whether this user may make labs: as root, or as root of a user namespace of its own.

rootless = check_rights()
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys

from minga.errors import LabError
from minga.measure.machine.lab import namespaces

__all__ = ["check_rights"]


def check_rights() -> bool:
    """Whether a user namespace is needed (False: we may make networks as we are). Raises LabError with a remedy."""
    if importlib.util.find_spec("pyroute2") is None:
        raise LabError("shaped networks need pyroute2; install it with: pip install 'minga[lab]'")
    finding = namespaces()
    if finding.state == "ok":
        return False
    if finding.state in ("limited", "unknown") and _user_namespace_works():
        return True
    remedy = finding.remedy or "run as root"
    raise LabError(
        f"no network namespaces can be made here ({finding.found}); {remedy}. "
        "Without a lab, leave out bandwidth, delay and cpu"
    )


def _user_namespace_works() -> bool:
    """Try it in a process of its own: some systems forbid it in ways that no file shows."""
    code = "from minga.lab.namespaces import *; unshare(USER | NETWORK)"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode == 0
