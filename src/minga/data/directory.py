"""Where data sets lie: `--data DIR`, or the environment variable MINGA_DATA."""

from __future__ import annotations

import os
from pathlib import Path

from minga.errors import DataError

__all__ = ["dataset_directory"]


def dataset_directory(name: str, data: Path | None, *, needs: list[str]) -> Path:
    """The directory of one data set, or an error that says what to put where."""
    told = os.environ.get("MINGA_DATA")
    chosen = data if data is not None else Path(told).expanduser() if told else None
    if chosen is None:
        raise DataError(
            f"{name} is not part of Minga and no data directory is given. Put its files ({', '.join(needs)}) into "
            f"DIR/{name}/ and give --data DIR, or set MINGA_DATA=DIR. To try Minga without data: minga train digits"
        )
    if not chosen.is_dir():
        raise DataError(f"the data directory {chosen} does not exist; give another with --data DIR or MINGA_DATA")
    directory = chosen / name
    missing = [file for file in needs if not ((directory / file).is_file() or (directory / f"{file}.gz").is_file())]
    if missing:
        raise DataError(
            f"{directory} lacks {', '.join(missing)} (plain or .gz). Put the data set's original files there, "
            "or give another directory with --data DIR or MINGA_DATA"
        )
    return directory
