"""Downloads that go on where they broke off, and get their name only when all of it is there.

    download("https://host/file.gz", Path("file.gz"), check=lambda path: None)

What has come so far is in `file.gz.part`; what the server said of the version that it is of, in `file.gz.part.json`.
A server that can't go on in the middle, or that has another version by now, begins again.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import http.client
import json
import os
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import urlsplit

from minga.data.directory import check_space
from minga.data.progress import NO_PROGRESS, ProgressDisplay
from minga.errors import DataError, DownloadFailed

__all__ = ["Patience", "download"]

_PIECE = 1 << 18
_HOPELESS = {400, 401, 403, 404, 405, 410, 451}


@dataclass(frozen=True, kw_only=True)
class Patience:
    """How long to put up with a bad connection."""

    attempts: int = 6
    """In a row, without a single byte in between."""

    first_pause_seconds: float = 1.0
    """Before the second attempt; doubled each time."""

    timeout_seconds: float = 30.0
    """Without a byte."""


class _Broken(Exception):
    """The connection ended too early, or the server has trouble; another attempt may help."""


def download(
    url: str,
    target: Path,
    *,
    check: Callable[[Path], str | None],
    progress: ProgressDisplay = NO_PROGRESS,
    patience: Patience | None = None,
) -> None:
    """Bring `url` to `target`. `check` says what is wrong with the file, if anything, before it gets its name."""
    if urlsplit(url).scheme not in ("http", "https"):
        raise DataError(f"{url} can't be downloaded: only http and https can")
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f"{target.name}.part")
    with _alone(part) as file:
        resumed = file.seek(0, os.SEEK_END) > 0
        _bring(url, file, target, progress, patience or Patience())
        problem = check(part)
        if problem is not None and resumed:
            # What was left of an earlier attempt may have been another version's.
            _begin_again(file)
            _bring(url, file, target, progress, patience or Patience())
            problem = check(part)
        if problem is not None:
            _begin_again(file)
            part.unlink()
            _notes_of(part).unlink(missing_ok=True)
            raise DataError(
                f"what {url} gives is not what it should be: {problem}. Try again later, or bring the file from "
                "elsewhere with --from DIR"
            )
        os.fsync(file.fileno())
        part.replace(target)
    _notes_of(part).unlink(missing_ok=True)


def _bring(url: str, file: BinaryIO, target: Path, progress: ProgressDisplay, patience: Patience) -> None:
    """Attempt after attempt, until all of it is there."""
    failures, pause = 0, patience.first_pause_seconds
    with contextlib.ExitStack() as bar:
        advance: Callable[[int], None] | None = None

        def show(total: int | None, done: int) -> Callable[[int], None]:
            nonlocal advance
            if advance is None:
                advance = bar.enter_context(progress.task(target.name, total=total, unit="bytes"))
                advance(done)
            return advance

        while True:
            before = file.seek(0, os.SEEK_END)
            try:
                return _attempt(url, file, target, show, patience.timeout_seconds)
            except _Broken as error:
                came = file.seek(0, os.SEEK_END) > before
                failures, pause = (1, patience.first_pause_seconds) if came else (failures + 1, pause * 2)
                if failures >= patience.attempts:
                    raise DownloadFailed(
                        f"{url} could not be downloaded: {error}, {failures} times in a row. What has come so far is "
                        f"kept: run the same command again to go on, or bring the file from elsewhere with --from DIR"
                    ) from None
            time.sleep(pause)


def _attempt(
    url: str, file: BinaryIO, target: Path, show: Callable[[int | None, int], Callable[[int], None]], timeout: float
) -> None:
    part = target.with_name(f"{target.name}.part")
    here = file.seek(0, os.SEEK_END)
    version = _read_notes(part).get("version") if here else None
    headers = {"User-Agent": "minga", "Accept-Encoding": "identity"}
    if here:
        headers["Range"] = f"bytes={here}-"
        if version:
            headers["If-Range"] = version
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=timeout) as answer:
            start, total = _range_of(answer)
            if start not in (0, here):
                raise _Broken(f"it goes on at byte {start:,} instead of {here:,}")
            if start != here:  # it gives all of it, from the beginning
                show(total, here)(-here)
                _begin_again(file)
            if total is not None:
                check_space(target.name, target.parent, total - start, "make room, or use another with --data DIR")
            _notes_of(part).write_text(json.dumps({"url": url, "version": _version_of(answer)}), encoding="utf-8")
            _receive(answer, file, total, show(total, start))
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == 416:  # nothing is left to send: it was all there, or is shorter than what is here
            if (error.headers.get("Content-Range") or "").rpartition("/")[2] == str(here):
                return
            _begin_again(file)
            raise _Broken("it has fewer bytes than were here already") from None
        if error.code in _HOPELESS:
            raise DataError(
                f"{url} says {error.code} {error.reason}: the file is not there any more, or not for everybody. Get it "
                "in a browser from the data set's homepage and bring it with --from DIR"
            ) from None
        raise _Broken(f"the server says {error.code} {error.reason}") from None
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise DataError(f"the disk of {target.parent} is full; make room, or use another with --data DIR") from None
        reason = getattr(error, "reason", None) or error
        raise _Broken(f"the connection failed ({reason})") from None
    except http.client.HTTPException as error:
        raise _Broken(f"the connection failed ({error!r})") from None


def _receive(answer: Any, file: BinaryIO, total: int | None, advance: Callable[[int], None]) -> None:
    while piece := answer.read(_PIECE):
        file.write(piece)
        advance(len(piece))
    file.flush()
    here = file.tell()
    if total is not None and here < total:
        raise _Broken(f"the connection ended after {here:,} of {total:,} bytes")


def _range_of(answer: Any) -> tuple[int, int | None]:
    """Where the answer begins, and the bytes in all."""
    length = answer.headers.get("Content-Length")
    if answer.status != 206:
        return 0, int(length) if length is not None else None
    stretch, _, total = (answer.headers.get("Content-Range") or "").removeprefix("bytes ").partition("/")
    start = stretch.partition("-")[0]
    if not start.isdigit():
        raise _Broken("it does not say which part it sends")
    return int(start), int(total) if total.isdigit() else None


def _version_of(answer: Any) -> str | None:
    """The tag or time of this version of the file; weak tags are the same for different bytes."""
    tag: str | None = answer.headers.get("ETag")
    if tag and not tag.startswith("W/"):
        return tag
    modified: str | None = answer.headers.get("Last-Modified")
    return modified


def _begin_again(file: BinaryIO) -> None:
    file.seek(0)
    file.truncate()


def _notes_of(part: Path) -> Path:
    return part.with_name(f"{part.name}.json")


def _read_notes(part: Path) -> dict[str, Any]:
    try:
        notes = json.loads(_notes_of(part).read_text(encoding="utf-8"))
        return notes if isinstance(notes, dict) else {}
    except (OSError, ValueError):
        return {}


@contextlib.contextmanager
def _alone(part: Path) -> Iterator[BinaryIO]:
    """The file, for this process only."""
    with part.open("a+b") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise DataError(f"another process is downloading {part.name.removesuffix('.part')}; wait for it") from None
        try:
            yield file
        finally:
            if not file.closed and file.seek(0, os.SEEK_END) == 0:
                part.unlink(missing_ok=True)  # nothing has come that is worth keeping
