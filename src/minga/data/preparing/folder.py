"""A folder that is made under another name and gets its own when all in it is there and on the disk.

    with new_folder(Path("prepared/fish")) as folder:        # prepared/.minga-preparing-fish-x3k2_a9q
        ...                                                  # and now prepared/fish

Whatever ends the one who makes it, nobody ever sees half of one: what is left lies under its other name, locked by
nobody, and the next one who makes the same folder removes it. An older set that was moved away, and that nothing has
come in the place of, gets its name back.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from minga.data.prepared.manifest import MANIFEST, SKIPPED, PreparedManifest, is_prepared
from minga.errors import DataError

__all__ = ["check_free", "new_folder"]

_BEFORE = "-before"


def check_free(out: Path, *, replace: bool) -> None:
    """`DataError` if there is something at this place that may not be replaced."""
    try:
        _tidy(out, remove=False)
        if not out.exists():
            return
    except OSError as error:
        raise DataError(f"{out.parent} can't be looked into ({error}); choose another with --out") from None
    if not is_prepared(out):
        raise DataError(f"{out} exists already; give another folder with --out")
    if not replace:
        raise DataError(f"{out} exists already; give --replace to make it again")
    try:
        manifest = PreparedManifest.load(out)
    except DataError as error:
        raise DataError(f"{out} is not replaced, for it may be something else ({error}); remove it yourself") from None
    shards = {shard.file for part in manifest.parts.values() for shard in part.shards}
    others = sorted({path.name for path in out.iterdir()} - shards - {MANIFEST, SKIPPED})
    if others:
        raise DataError(
            f"{out} is not replaced: {others[0]!r} in it is not of the prepared set; move it elsewhere, or give "
            "another folder with --out"
        )


@contextlib.contextmanager
def new_folder(out: Path, *, replace: bool = False) -> Iterator[Path]:
    """The folder to write to; `replace`: a prepared set that is there stays until the new one is whole."""
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        _tidy(out, remove=True)
        folder = Path(tempfile.mkdtemp(prefix=_prefix(out), dir=out.parent))
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
        shutil.rmtree(folder, ignore_errors=True)  # what could not be finished, or what was there before
        if held is not None:
            os.close(held)


def _put_in_place(folder: Path, out: Path, replace: bool) -> None:
    check_free(out, replace=replace)  # again: another one may have made it meanwhile
    if not out.exists():
        folder.rename(out)
        return
    held = _lock(out)
    if held is None:
        raise DataError(f"another process replaces {out} just now; wait for it")
    before = folder.with_name(f"{folder.name}{_BEFORE}")
    try:
        out.rename(before)
        try:
            folder.rename(out)
        except OSError:
            before.rename(out)
            raise
        before.rename(folder)  # it is not the only one any more
    finally:
        os.close(held)


def _tidy(out: Path, *, remove: bool) -> None:
    """Of those who were killed in the middle: the set that one had moved away comes back if nothing is in its place.

    `remove`: what else they have left. Whoever is at work holds what is his.
    """
    begun = re.compile(f"{re.escape(_prefix(out))}[a-z0-9_]{{8}}({_BEFORE})?")
    for path in sorted(out.parent.iterdir()) if out.parent.is_dir() else ():
        held = _lock(path) if begun.fullmatch(path.name) and path.is_dir() else None
        if held is None:
            continue
        try:
            if path.name.endswith(_BEFORE) and not out.exists():
                path.rename(out)
            elif remove:
                shutil.rmtree(path, ignore_errors=True)
        finally:
            os.close(held)


def _prefix(out: Path) -> str:
    """No other program calls its folders so."""
    return f".minga-preparing-{out.name}-"


def _lock(folder: Path) -> int | None:
    """A descriptor that holds it until it is closed or this process ends; None if another has it, or has removed it."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor
