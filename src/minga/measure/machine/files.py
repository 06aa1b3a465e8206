"""Small files in which the kernel describes the machine.

    read(ROOT / "proc/self/status")

Tests give another root, with files of their own.
"""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

__all__ = ["ROOT", "read"]

ROOT = Path("/")


def read(path: Path) -> str | None:
    """A small file's text without the space around it; None where it is not there or not for us."""
    try:
        content = path.read_bytes()
        return (gzip.decompress(content) if path.suffix == ".gz" else content).decode(errors="replace").strip()
    except (OSError, EOFError, zlib.error):
        return None
