"""Whether a file can be written, asked before the work whose result goes there."""

from __future__ import annotations

import os
from pathlib import Path

from minga.errors import ConfigError

__all__ = ["check_writable"]


def check_writable(path: Path) -> None:
    """Raise `ConfigError` where it can't."""
    folder = path.expanduser().parent
    if not folder.is_dir():
        raise ConfigError(f"can't write {path}: there is no directory {folder}")
    if path.is_dir() or not os.access(path if path.exists() else folder, os.W_OK):
        raise ConfigError(f"can't write {path}: {'it is a directory' if path.is_dir() else 'not allowed'}")
