"""Downloads that go on where they broke off, and get their name only when all of it is there.

    download("https://host/file.gz", Path("file.gz"), check=lambda path: None)

What has come so far is in `file.gz.part`; the version that it is of, as the server names it, in `file.gz.part.version`.
A server that can't go on in the middle, or that has another version by now, begins again.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import http.client
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
    part, version = (target.with_name(f"{target.name}{ending}") for ending in (".part", ".part.version"))
    with _alone(part) as file:
        coming = _Download(url, target, file, version, progress, patience or Patience())
        resumed = coming.size > 0
        coming.bring()
        problem = check(part)
        if problem is not None and resumed:
            # What was left of an earlier attempt may have been another version's.
            coming.begin_again()
            coming.bring()
            problem = check(part)
        version.unlink(missing_ok=True)
        if problem is not None:
            coming.begin_again()  # and `_alone` removes it
            raise DataError(
                f"what {url} gives is not what it should be: {problem}. Try again later, or bring the file from "
                "elsewhere with --from DIR"
            )
        os.fsync(file.fileno())
        part.replace(target)


@dataclass
class _Download:
    """What has come of a file, and attempts to get the rest."""

    url: str
    target: Path
    file: BinaryIO
    version: Path
    progress: ProgressDisplay
    patience: Patience
    advance: Callable[[int], None] | None = None
    """Of the bar that is shown since the first answer, which says how long it is."""

    @property
    def size(self) -> int:
        """Bytes that are here."""
        return self.file.seek(0, os.SEEK_END)

    def begin_again(self) -> None:
        self.file.truncate(0)

    def bring(self) -> None:
        """Attempt after attempt, until all of it is there."""
        self.advance = None
        failures, pause = 0, self.patience.first_pause_seconds
        with contextlib.ExitStack() as bar:
            while True:
                before = self.size
                try:
                    return self._attempt(bar)
                except _Broken as error:
                    came = self.size > before
                    failures, pause = (1, self.patience.first_pause_seconds) if came else (failures + 1, pause * 2)
                    if failures >= self.patience.attempts:
                        raise DownloadFailed(
                            f"{self.url} could not be downloaded: {error}, {failures} times in a row. What has come "
                            "so far is kept: run the same command again to go on, or bring the file from elsewhere "
                            "with --from DIR"
                        ) from None
                time.sleep(pause)

    def _attempt(self, bar: contextlib.ExitStack) -> None:
        folder, here = self.target.parent, self.size
        headers = {"User-Agent": "minga", "Accept-Encoding": "identity"}
        if here:
            headers["Range"] = f"bytes={here}-"
            if self.version.is_file() and (version := self.version.read_text(encoding="utf-8")):
                headers["If-Range"] = version
        try:
            asked = urllib.request.Request(self.url, headers=headers)
            with urllib.request.urlopen(asked, timeout=self.patience.timeout_seconds) as answer:
                start, total = _range_of(answer)
                if start not in (0, here):
                    raise _Broken(f"it goes on at byte {start:,} instead of {here:,}")
                if self.advance is None:
                    self.advance = bar.enter_context(self.progress.task(self.target.name, total=total, unit="bytes"))
                    self.advance(here)
                if start != here:  # it gives all of it, from the beginning
                    self.advance(-here)
                    self.begin_again()
                if total is not None:
                    check_space(self.target.name, folder, total - start, "make room, or use another with --data DIR")
                self.version.write_text(_version_of(answer), encoding="utf-8")
                while piece := answer.read(_PIECE):
                    self.file.write(piece)
                    self.advance(len(piece))
                self.file.flush()
                if total is not None and self.size < total:
                    raise _Broken(f"the connection ended after {self.size:,} of {total:,} bytes")
        except urllib.error.HTTPError as error:
            error.close()
            if error.code == 416:  # nothing is left to send: it was all there, or is shorter than what is here
                if (error.headers.get("Content-Range") or "").rpartition("/")[2] == str(here):
                    return
                self.begin_again()
                raise _Broken("it has fewer bytes than were here already") from None
            if error.code in _HOPELESS:
                raise DataError(
                    f"{self.url} says {error.code} {error.reason}: the file is not there any more, or not for "
                    "everybody. Get it in a browser from the data set's homepage and bring it with --from DIR"
                ) from None
            raise _Broken(f"the server says {error.code} {error.reason}") from None
        except OSError as error:
            if error.errno == errno.ENOSPC:
                raise DataError(f"the disk of {folder} is full; make room, or use another with --data DIR") from None
            reason = getattr(error, "reason", None) or error
            raise _Broken(f"the connection failed ({reason})") from None
        except http.client.HTTPException as error:
            raise _Broken(f"the connection failed ({error!r})") from None


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


def _version_of(answer: Any) -> str:
    """The tag or time of this version of the file, if it says one; weak tags are the same for different bytes."""
    tag: str = answer.headers.get("ETag") or "W/"
    modified: str = answer.headers.get("Last-Modified") or ""
    return modified if tag.startswith("W/") else tag


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
