"""Where data sets lie: `--data DIR`, or the environment variable MINGA_DATA, or a folder of this user.

data_directory(None)                                           # ~/.local/share/minga/data
dataset_directory("mnist", None, needs=["train-images-idx3-ubyte"])
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from minga.data.packed import lies_here
from minga.data.sources import known_datasets
from minga.errors import DataError

__all__ = ["check_space", "data_directory", "dataset_directory"]


def data_directory(given: Path | None) -> Path:
    """Where data sets are fetched to and looked for: what is given, what MINGA_DATA says, or this user's own."""
    if given is not None:
        return given.expanduser()
    if chosen := os.environ.get("MINGA_DATA"):
        return Path(chosen).expanduser()
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "minga" / "data"


def dataset_directory(name: str, data: Path | None, *, needs: list[str]) -> Path:
    """The directory of one data set (by its folder's name), or an error that says how to get it."""
    chosen = data_directory(data)
    own = data is None and not os.environ.get("MINGA_DATA")
    directory = chosen / name
    missing = [file for file in needs if lies_here(directory / file) is None]
    if not missing:
        return directory
    fetch = _how_to_fetch(name, None if own else data)
    if own and not directory.is_dir():
        raise DataError(
            f"{name} is not part of Minga and is not here yet. {fetch}Or put its files ({', '.join(needs)}) into "
            f"DIR/{name}/ and give --data DIR, or set MINGA_DATA=DIR. To try Minga without data: minga train digits"
        )
    if not chosen.is_dir():
        raise DataError(
            f"the data directory {chosen} does not exist; give another with --data DIR or MINGA_DATA. {fetch}".rstrip()
        )
    raise DataError(
        f"{directory} lacks {', '.join(missing)} (plain or .gz). {fetch}Put the data set's original files there, "
        "or give another directory with --data DIR or MINGA_DATA"
    )


def check_space(what: str, folder: Path, needed: int, remedy: str) -> None:
    """`DataError` where the disk of a folder has less room than is needed."""
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise DataError(f"{what} needs {needed:,} more bytes, and the disk of {folder} has {free:,} left; {remedy}")


def _how_to_fetch(folder: str, data: Path | None) -> str:
    name = next((each.name for each in known_datasets().values() if each.folder == folder), None)
    where = f" --data {data}" if data is not None else ""
    return "" if name is None else f"Fetch it: minga data fetch {name}{where}. "
