"""Objects from users' own files: `my.py:workload`, `examples/own_strategy.py:ElasticAveraging`."""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from minga.errors import ConfigError, unknown

__all__ = ["check_file", "load_from_file", "names_in_file"]


def load_from_file(reference: str) -> Any:
    """The object that `path/file.py:name` means."""
    path = check_file(reference)
    path_text, _, name = reference.partition(":")
    if not name.isidentifier():
        raise ConfigError(f"{reference!r} should be file.py:name, with the name of an object in the file")
    module = _import(path)
    if not hasattr(module, name):
        raise unknown(f"name in {path_text}:", name, [key for key in vars(module) if not key.startswith("_")])
    return getattr(module, name)


def names_in_file(reference: str) -> dict[str, Any]:
    """All that the file of `path/file.py:name` defines."""
    return vars(_import(check_file(reference)))


def check_file(reference: str) -> Path:
    """The file of `path/file.py:name`, or an error that says where it was looked for."""
    path_text = reference.partition(":")[0]
    path = Path(path_text).expanduser().resolve()
    if not path.is_file():
        raise ConfigError(f"there is no file {path_text!r} (looked for {path}); give file.py:name")
    return path


@functools.cache
def _import(path: Path) -> ModuleType:
    """Import a file once per process, with its own folder importable, as a script would have it."""
    module_name = f"minga_user_{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"
    spec = importlib.util.spec_from_file_location(module_name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))
    try:
        spec.loader.exec_module(module)
    except SyntaxError as error:
        del sys.modules[module_name]
        where = Path(error.filename).name if error.filename else path.name
        raise ConfigError(f"{where}, line {error.lineno}: {error.msg}") from None
    except ImportError as error:
        del sys.modules[module_name]
        raise ConfigError(f"{path.name} can't be imported: {error}") from error
    return module
