"""A folder that is made under another name and gets its own when all in it is there and on the disk.

    with new_folder(Path("prepared/fish")) as folder:        # prepared/.fish-x3k2
        ...                                                  # and now prepared/fish

Whatever ends the one who makes it, nobody ever sees half of one: what is left lies under its other name, locked by
nobody, and the next one who makes the same folder removes it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from minga.data.prepared.manifest import is_prepared
from minga.errors import DataError

__all__ = ["check_free", "new_folder"]


def check_free(out: Path, *, replace: bool) -> None:
    """`DataError` if there is something at this place that may not be replaced."""
    if out.exists() and not (replace and is_prepared(out)):
        remedy = "give --replace to make it anew" if is_prepared(out) else "give another folder with --out"
        raise DataError(f"{out} exists already; {remedy}")


@contextlib.contextmanager
def new_folder(out: Path, *, replace: bool = False) -> Iterator[Path]:
    """The folder to write to; `replace`: a prepared set that is there stays until the new one is whole."""
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        _remove_remains(out)
        folder = Path(tempfile.mkdtemp(prefix=f".{out.name}-", dir=out.parent))
    except OSError as error:
        raise DataError(f"no folder can be made in {out.parent} ({error}); choose another with --out") from None
    held = _lock(folder)
    try:
        yield folder
        for path in folder.iterdir():
            with path.open("rb+") as file:
                os.fsync(file.fileno())
        folder.chmod(0o755)
        _put_in_place(folder, out, replace)
    except OSError as error:
        raise DataError(
            f"{out} can't be written ({error}); nothing was changed, choose another disk with --out"
        ) from None
    finally:
        shutil.rmtree(folder, ignore_errors=True)  # not there any more if all went well
        if held is not None:
            os.close(held)


def _put_in_place(folder: Path, out: Path, replace: bool) -> None:
    check_free(out, replace=replace)  # again: another one may have made it meanwhile
    before = folder.with_name(f"{folder.name}-before")
    if out.exists():
        out.rename(before)
    folder.rename(out)
    shutil.rmtree(before, ignore_errors=True)


def _remove_remains(out: Path) -> None:
    """Of those who were killed in the middle."""
    for path in out.parent.glob(f".{out.name}-*"):
        held = _lock(path) if path.is_dir() else None
        if held is not None:
            shutil.rmtree(path, ignore_errors=True)
            os.close(held)


def _lock(folder: Path) -> int | None:
    """A descriptor that holds it until it is closed or this process ends; None if another has it."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor
