"""Checkpoints on disk: `checkpoints/step-00000123/rank-0.safetensors`, `rank-0.json`, `rank-1...`.

Every rank writes its own part and asks nobody. A file gets its name only when all of it is on the disk, and a part's
manifest, which has the hash of the rest, comes last. So whatever happens on the way, a checkpoint is whole (all
manifests are there and every file has its hash) or can be distinguished from one that is.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from safetensors import SafetensorError, safe_open

from minga.errors import ProtocolError
from minga.net import strict
from minga.net.strict import Count

__all__ = [
    "FORMAT",
    "Checkpoint",
    "Manifest",
    "best_of",
    "checkpoint_name",
    "give_name",
    "list_checkpoints",
    "partial_of",
    "prune",
    "remove_leftovers",
    "summary_of",
    "sync_directory",
    "write_partial",
]

FORMAT = 1
"""Of snapshots and manifests."""

_NAME = re.compile(r"step-(\d{8,})|moment-(\d{3,})-(\d{8,})")
_PARTIAL = ".partial"


def checkpoint_name(moment: int, session: int | None = None) -> str:
    """The directory's name: of a step of all ranks, or (`session`) of a moment of ranks that are not in lock step."""
    return f"step-{moment:08d}" if session is None else f"moment-{session:03d}-{moment:08d}"


@dataclass(frozen=True, kw_only=True)
class Manifest(strict.StrictRecord):
    """What one rank says of its part."""

    format: Count
    step: Count
    rank: Count
    ranks: Count
    workload: str
    strategy: str
    layout: str
    """Hash of the parameters' names, shapes and type."""
    epoch: Count
    offset: Count
    """Samples of the epoch that are done."""
    bytes: Count
    sha256: str
    time: str
    """When it was written, for people."""
    checkpoint: str | None = None
    """The name of the checkpoint that it is a part of, which no other part has."""
    metric: str | None = None
    """What the model was tested by at this step, if it was."""
    value: float | None = None
    higher_is_better: bool = True

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=1) + "\n"

    @classmethod
    def read(cls, path: Path) -> Self:
        """`OSError` where there is none, `ProtocolError` where it is malformed."""
        try:
            table = json.loads(_regular(path).read_bytes())
        except (ValueError, RecursionError) as error:
            raise ProtocolError(f"it is no JSON: {error}") from None
        if isinstance(table, dict) and table.get("format", FORMAT) != FORMAT:
            raise ProtocolError(f"it has format {table['format']!r}; this version of minga reads {FORMAT}")
        return strict.parse(cls, table, "manifest")


@dataclass(frozen=True)
class Checkpoint:
    """A directory with the parts of a checkpoint, whole or not."""

    directory: Path

    @classmethod
    def of(cls, run: Path, name: str) -> Self:
        return cls(run / "checkpoints" / name)

    @property
    def name(self) -> str:
        return self.directory.name

    @property
    def order(self) -> tuple[int, ...]:
        """Later ones have larger ones; ranks fall out of step at most once in a run, and then for good."""
        match = _NAME.fullmatch(self.name)
        assert match is not None
        return (0, int(match[1])) if match[1] is not None else (1, int(match[2]), int(match[3]))

    def manifest(self, rank: int) -> Manifest:
        return Manifest.read(self.directory / f"rank-{rank}.json")

    @property
    def first(self) -> Manifest | None:
        """The manifest of the first rank that has one which can be read."""
        for path in sorted(self.directory.glob("rank-*.json")):
            with contextlib.suppress(OSError, ProtocolError):
                return Manifest.read(path)
        return None

    @property
    def ranks(self) -> int:
        """How many parts it should have, as any of them says; 0 if none does."""
        first = self.first
        return 0 if first is None else first.ranks

    @property
    def complete(self) -> bool:
        """Whether all parts are there; what is in them is for `problem` to look at."""
        ranks = self.ranks
        return ranks > 0 and all((self.directory / f"rank-{rank}.json").is_file() for rank in range(ranks))

    def problem(self) -> str | None:
        """What is wrong with it, with the file's name; None if it is whole. Reads everything."""
        ranks = self.ranks
        if not ranks:
            return "no part of it is complete"
        problems = (self._problem_of(rank, ranks) for rank in range(ranks))
        return next((problem for problem in problems if problem is not None), None)

    def _problem_of(self, rank: int, ranks: int) -> str | None:
        path = self.directory / f"rank-{rank}.safetensors"
        try:
            manifest = self.manifest(rank)
            if (manifest.rank, manifest.ranks) != (rank, ranks):
                return f"rank-{rank}.json is of rank {manifest.rank} of {manifest.ranks}"
            if manifest.checkpoint not in (None, self.name):
                return f"rank-{rank}.json is of another checkpoint, {manifest.checkpoint}"
        except FileNotFoundError:
            return f"rank-{rank}.json is missing"
        except (OSError, ProtocolError) as error:
            return f"rank-{rank}.json can't be used: {error}"
        try:
            size = _regular(path).stat().st_size
            if size != manifest.bytes:
                return f"{path.name} has {size:,} bytes instead of {manifest.bytes:,}"
            with path.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
            if digest != manifest.sha256:
                return f"{path.name} was changed: its SHA-256 is another"
            with safe_open(path, framework="np") as content:  # looks at the header and where each tensor lies
                facts = json.loads(content.metadata()["minga"])
            if (facts["step"], facts["rank"], facts["ranks"]) != (manifest.step, rank, ranks):
                return f"{path.name} is of another step or rank than its manifest says"
        except FileNotFoundError:
            return f"{path.name} is missing"
        except OSError as error:
            return f"{path.name} can't be read: {error.strerror or error}"
        except (ProtocolError, SafetensorError, ValueError, KeyError, TypeError, RecursionError) as error:
            return f"{path.name} is malformed: {error}"
        return None

    @property
    def nbytes(self) -> int:
        return sum(path.stat().st_size for path in self.directory.iterdir())


def _regular(path: Path) -> Path:
    """The path of a file; `ProtocolError` for what is none, such as a pipe, which to read might never end."""
    if path.exists() and not path.is_file():
        raise ProtocolError("it is no file")
    return path


def list_checkpoints(run: Path) -> list[Checkpoint]:
    """All of a run, whole or not, the oldest first."""
    folder = run / "checkpoints"
    if not folder.is_dir():
        return []
    found = [Checkpoint(path) for path in folder.iterdir() if _NAME.fullmatch(path.name) and path.is_dir()]
    return sorted(found, key=lambda checkpoint: checkpoint.order)


def write_partial(path: Path, pieces: Iterable[bytes | memoryview]) -> tuple[str, int]:
    """Bring what a file will contain onto the disk, beside it; its SHA-256 and size. Leaves nothing when it fails."""
    digest, size = hashlib.sha256(), 0
    try:
        with partial_of(path).open("wb", buffering=0) as file:
            for piece in pieces:
                view = memoryview(piece)
                digest.update(view)
                size += len(view)
                while len(view):  # one call may write less than asked for
                    view = view[file.write(view) :]
            os.fsync(file.fileno())
    except BaseException:
        with contextlib.suppress(OSError):
            partial_of(path).unlink(missing_ok=True)
        raise
    return digest.hexdigest(), size


def give_name(path: Path) -> None:
    """What `write_partial` has written becomes the file, as a whole, also if the power is cut."""
    partial_of(path).replace(path)
    sync_directory(path.parent)


def partial_of(path: Path) -> Path:
    """Where the content of a file is until it has its name."""
    return path.with_name(f".{path.name}{_PARTIAL}")


def sync_directory(directory: Path) -> None:
    """Have the names in a directory survive a power cut."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove_leftovers(run: Path, rank: int | None = None) -> None:
    """Files that a killed process had not finished, of one rank or (None) of all."""
    for path in (run / "checkpoints").glob(f"*/.rank-{'*' if rank is None else rank}.*{_PARTIAL}"):
        with contextlib.suppress(OSError):
            path.unlink()


def best_of(checkpoints: Sequence[Checkpoint]) -> Checkpoint | None:
    """The one with the best metric of those that have one; of equals the first."""
    rated: list[tuple[float, Checkpoint]] = []
    for checkpoint in checkpoints:
        manifest = checkpoint.first
        if manifest is not None and manifest.value is not None:
            rated.append((manifest.value if manifest.higher_is_better else -manifest.value, checkpoint))
    return max(rated, key=lambda pair: pair[0])[1] if rated else None


def prune(run: Path, *, keep: int, keep_best: bool) -> None:
    """Remove what is older than the last `keep` complete ones, but not the best; any rank may, also several at once.

    Something is removed only when a later one is complete, so that all ranks are done with it.
    """
    listed = list_checkpoints(run)
    complete = [checkpoint for checkpoint in listed if checkpoint.complete]
    kept = complete[-keep:]
    if not kept:
        return
    staying = [*kept, best_of(complete) if keep_best else None]
    for checkpoint in listed:
        if checkpoint not in staying and checkpoint.order < kept[0].order:
            # The manifests first: what is half removed must not look whole.
            for path in sorted(checkpoint.directory.glob("rank-*.json")):
                with contextlib.suppress(OSError):
                    path.unlink(missing_ok=True)
            shutil.rmtree(checkpoint.directory, ignore_errors=True)


def summary_of(checkpoint: Checkpoint) -> dict[str, Any]:
    """A line of a listing, without a look at the contents."""
    first = checkpoint.first
    known = {name: getattr(first, name, None) for name in ("step", "time", "metric", "value")}
    return {"name": checkpoint.name, **known, "bytes": checkpoint.nbytes, "ranks": checkpoint.ranks}
