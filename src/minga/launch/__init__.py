"""Launchers: processes on this machine, in a lab, on other machines, under other launchers; scripts and functions.

`minga.launch(function, nodes=2)` is a call of this very module: Python gives a package's folder and a name in it one
place, so the folder is what is called. The work is done in `launch/functions.py`.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any


class _Callable(ModuleType):
    def __call__(self, function: Any, **options: Any) -> Any:
        from minga.launch.functions import launch

        return launch(function, **options)


sys.modules[__name__].__class__ = _Callable
