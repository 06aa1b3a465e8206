"""Objects from users' own files: `my.py:workload`, `examples/own_strategy.py:ElasticAveraging`."""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from minga.errors import ConfigError, unknown

__all__ = ["check_file", "check_names", "load_from_file", "names_in_file"]


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


def check_names(reference: str) -> Path:
    """The file of `path/file.py:name`, read but not imported; an error where it is no Python, or lacks the name."""
    path = check_file(reference)
    path_text, _, name = reference.partition(":")
    try:
        body = ast.parse(path.read_bytes(), str(path)).body
    except (SyntaxError, ValueError) as error:
        raise _not_python(path, error) from None
    names, all_known = _names_of(body)
    if all_known and name and name not in names:
        raise unknown(f"name in {path_text}:", name, [each for each in names if not each.startswith("_")])
    return path


def _names_of(body: Sequence[ast.stmt]) -> tuple[list[str], bool]:
    """What the statements of a module define at first sight, and whether that is all."""
    names: list[str] = []
    all_known = True
    for statement in body:
        match statement:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                names.append(name)
            case ast.Assign() | ast.AnnAssign() | ast.AugAssign():
                names += [node.id for node in ast.walk(statement) if isinstance(node, ast.Name)]
            case ast.Import(names=imported) | ast.ImportFrom(names=imported):
                names += [each.asname or each.name.partition(".")[0] for each in imported]
                all_known = all_known and not any(each.name == "*" for each in imported)
            case ast.Expr() | ast.Pass() | ast.Assert():
                pass
            case _:  # inside of `if`, `with`, `try` anything may be
                all_known = False
    return names, all_known


def _not_python(path: Path, error: SyntaxError | ValueError) -> ConfigError:
    if not isinstance(error, SyntaxError):
        return ConfigError(f"{path.name} is no Python: {error}")
    where = Path(error.filename).name if error.filename else path.name
    return ConfigError(f"{where}, line {error.lineno}: {error.msg}")


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
        raise _not_python(path, error) from None
    except ImportError as error:
        del sys.modules[module_name]
        raise ConfigError(f"{path.name} can't be imported: {error}") from error
    return module
