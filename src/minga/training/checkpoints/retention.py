"""Which checkpoints stay: the last ones that are whole, and the one with the best metric."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Sequence
from pathlib import Path

from minga.errors import ProtocolError
from minga.training.checkpoints.files import Checkpoint, Manifest, Reached, list_checkpoints

__all__ = ["best_of", "prune"]


def best_of(checkpoints: Sequence[Checkpoint]) -> Checkpoint | None:
    """The one with the best metric of those that have one; of equals the first."""
    rated: list[tuple[float, Checkpoint]] = []
    for checkpoint in checkpoints:
        manifest = _first(checkpoint)
        if manifest is not None and manifest.value is not None:
            rated.append((manifest.value if manifest.higher_is_better else -manifest.value, checkpoint))
    return max(rated, key=lambda pair: pair[0])[1] if rated else None


def prune(run: Path, *, keep: int, keep_best: bool, reached: Reached = lambda point: None) -> None:
    """Remove what is older than the last `keep` complete ones; any rank may do it, also several at once.

    Something is removed only when a later one is complete, so that all ranks are done with it.
    """
    listed = list_checkpoints(run)
    complete = [checkpoint for checkpoint in listed if checkpoint.complete]
    kept = complete[-keep:]
    if not kept:
        return
    staying = {checkpoint.name for checkpoint in kept}
    best = best_of(complete) if keep_best else None
    if best is not None:
        staying.add(best.name)
    for checkpoint in listed:
        if checkpoint.name not in staying and checkpoint.order < kept[0].order:
            remove(checkpoint, reached)


def remove(checkpoint: Checkpoint, reached: Reached = lambda point: None) -> None:
    """The manifests first: what is half removed must not look whole."""
    for path in sorted(checkpoint.directory.glob("rank-*.json")):
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)
            reached("manifest removed")
    shutil.rmtree(checkpoint.directory, ignore_errors=True)


def _first(checkpoint: Checkpoint) -> Manifest | None:
    try:
        return checkpoint.manifest(0)
    except (OSError, ProtocolError, UnicodeDecodeError):
        return None
