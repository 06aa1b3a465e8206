"""Processes: on this machine or in a lab, as ranks of a run or with a script; who sees them through to their end.

`minga.launch(function, nodes=2)` is a call of this very module: Python gives a package's folder and a name in it one
place, so the folder is what is called. As for all public names, `minga` knows where the function is.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any


class _Callable(ModuleType):
    def __call__(self, function: Any, **options: Any) -> Any:
        facade: Any = sys.modules["minga"]
        return facade.__getattr__("launch")(function, **options)


sys.modules[__name__].__class__ = _Callable
