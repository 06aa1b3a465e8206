"""Writes checkpoints beside training, in a thread of its own.

    writer = CheckpointWriter(run, keep=2, keep_best=True, failed=report)
    writer.submit(Part("step-00000100", state))           # at once; a newer one takes the place of one that still waits
    writer.close()

Whatever goes wrong (a full disk, one that can only be read, rights) is reported, and training goes on, earlier
checkpoints stay as they are, and nothing unfinished is left.
"""

from __future__ import annotations

import contextlib
import json
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from minga.model.blob import pieces_of
from minga.training.checkpoints.files import Manifest, give_name, partial_of, prune, sync_directory, write_partial
from minga.training.checkpoints.snapshot import Snapshot

__all__ = ["CheckpointWriter", "Part", "write_part"]

_LOG = logging.getLogger(__name__)
# Facts of a state that its manifest says too.
_NAMES = ("format", "step", "rank", "ranks", "workload", "strategy", "layout", "metric", "value", "higher_is_better")


@dataclass
class Part:
    """One rank's part of a checkpoint, ready to be written."""

    name: str
    """Of the checkpoint."""
    state: Snapshot
    taking_seconds: float = 0.0
    """What it cost training to make it."""


def write_part(run: Path, part: Part) -> int:
    """Write it, manifest last; its size. When it fails, nothing of it is left.

    One of the same step that was there before (ranks that recovered come by again) stays until all of it is written.
    """
    facts, folder = part.state.facts, run / "checkpoints"
    directory = folder / part.name
    data, manifest = (directory / f"rank-{facts['rank']}.{suffix}" for suffix in ("safetensors", "json"))
    written = [partial_of(data), partial_of(manifest)]
    try:
        directory.mkdir(parents=True, exist_ok=True)
        sync_directory(folder)
        digest, size = write_partial(data, pieces_of(part.state.tensors, {"minga": json.dumps(facts)}))
        said = Manifest(
            **{name: facts[name] for name in _NAMES if name in facts},
            epoch=facts["order"]["epoch"],
            offset=facts["order"]["offset"],
            bytes=size,
            sha256=digest,
            checkpoint=part.name,
            time=datetime.now(UTC).isoformat(timespec="seconds"),
        )
        write_partial(manifest, [said.to_json().encode()])
        written += [data, manifest]
        manifest.unlink(missing_ok=True)  # until the new one is there, it must not look whole
        give_name(data)
        give_name(manifest)
    except BaseException:
        for path in written:
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            directory.rmdir()  # if no other rank has something in it
        raise
    return size


class CheckpointWriter:
    """A thread that writes one part at a time; at most one more waits."""

    def __init__(
        self,
        run: Path,
        *,
        keep: int,
        keep_best: bool,
        failed: Callable[[str, Exception], None],
        written: Callable[[Part, float, int], None] = lambda part, seconds, nbytes: None,
    ) -> None:
        """Called in the writer's thread: `failed` with the name of what could not be written, `written` with what was.

        It gets the seconds that writing took, and the bytes.
        """
        self._run = run
        self._keep = keep
        self._keep_best = keep_best
        self._failed = failed
        self._written = written
        self._changed = threading.Condition()
        self._waiting: dict[bool, Part] = {}
        """At most one that is the best, and one that is not."""
        self._writing = False
        self._closed = False
        self._thread: threading.Thread | None = None

    def submit(self, part: Part, *, best: bool = False) -> None:
        """Have it written soon, instead of one of its kind that still waits; parts must come in their order."""
        with self._changed:
            self._waiting.pop(best, None)
            self._waiting[best] = part
            if self._thread is None:
                thread = threading.Thread(target=self._work, name="minga-checkpoints", daemon=True)
                try:
                    thread.start()
                except RuntimeError as error:  # no memory for it, or too many
                    self._waiting.clear()
                    self._failed(part.name, error)
                    return
                self._thread = thread
            self._changed.notify_all()

    def wait(self, seconds: float | None = None) -> bool:
        """Until nothing is to be written any more; False if that takes longer."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._waiting and not self._writing, timeout=seconds)

    def close(self, seconds: float | None = None) -> bool:
        """Write what is left, then end; False if that takes longer than `seconds`."""
        done = self.wait(seconds)
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if done and self._thread is not None:
            self._thread.join()
        return done

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._closed)
                if not self._waiting:
                    return
                part = self._waiting.pop(next(iter(self._waiting)))  # what has waited longest
                self._writing = True
            try:
                self._write(part)
            finally:
                del part  # a copy of the whole model
                with self._changed:
                    self._writing = False
                    self._changed.notify_all()

    def _write(self, part: Part) -> None:
        began = time.perf_counter()
        try:
            size = write_part(self._run, part)
            self._written(part, time.perf_counter() - began, size)
        except Exception as error:
            try:
                self._failed(part.name, error)
            except Exception:  # the callback may fail too; this thread must live, since others wait for it
                _LOG.exception("could not report that checkpoint %s was not written: %s", part.name, error)
            return
        with contextlib.suppress(OSError):  # another rank may be at it too, and what stays now goes the next time
            prune(self._run, keep=self._keep, keep_best=self._keep_best)
