"""Configurations in TOML files, with errors that name the file and the line.

experiment = load_config(Experiment, Path("experiment.toml"))
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

from minga.base.config import AnyConfig, FieldError, build
from minga.errors import ConfigError

__all__ = ["at_its_place", "load_config", "read_toml"]


def load_config(cls: type[AnyConfig], path: Path) -> AnyConfig:
    """Build a configuration from a TOML file."""
    text, table = read_toml(path)
    try:
        return build(cls, table)
    except FieldError as error:
        raise at_its_place(error, path, text) from None


def read_toml(path: Path) -> tuple[str, dict[str, Any]]:
    """The text of a file (for `at_its_place`) and what it says."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"can't read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path} is no text in UTF-8") from None
    try:
        return text, tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: this is no TOML: {error}") from None


def at_its_place(error: FieldError, path: Path, text: str, *, tables: tuple[str, ...] = ()) -> ConfigError:
    """The error with file and line; `tables` are looked at first, where a value may have been set instead."""
    line = next((line for table in tables if (line := _line_of(text, (table, *error.path), exact=True))), None)
    line = line or _line_of(text, error.path)
    return ConfigError(f"{path}, line {line}: {error}" if line else f"{path}: {error}")


def _line_of(text: str, path: tuple[str, ...], *, exact: bool = False) -> int | None:
    """The line where a key is set: in its table, as a dotted key, or (nearest) its table's own line.

    A table in a list of tables, `[[environment]]`, has its number (from 0) as a part of the path.
    """
    nearest: int | None = None
    table: tuple[str, ...] = ()
    seen: dict[tuple[str, ...], int] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if listed := re.match(r"\s*\[\[\s*([^\[\]]+?)\s*\]\]", line):
            name = _parts(listed[1])
            seen[name] = seen.get(name, -1) + 1
            table = (*name, str(seen[name]))
        elif header := re.match(r"\s*\[\s*([^\[\]]+?)\s*\]", line):
            table = _numbered(_parts(header[1]), seen)
        elif key := re.match(r"\s*([\w.\"'-]+)\s*=", line):
            here = (*table, *_parts(key[1]))
            if here == path[: len(here)]:
                return number
            continue
        else:
            continue
        if table == path[: len(table)]:
            nearest = number
    return None if exact else nearest


def _parts(dotted: str) -> tuple[str, ...]:
    return tuple(part.strip(" \"'") for part in dotted.split("."))


def _numbered(name: tuple[str, ...], seen: dict[tuple[str, ...], int]) -> tuple[str, ...]:
    """`[environment.cluster]` below `[[environment]]` belongs to the last of these."""
    for listed, index in seen.items():
        if name[: len(listed)] == listed:
            return (*listed, str(index), *name[len(listed) :])
    return name
