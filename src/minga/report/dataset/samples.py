"""Samples of what a rank used, made fit for drawing.

for sample in join_short(run.samples[0]): ...
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from minga.report.dataset.reading import Sample

__all__ = ["join_short"]


def join_short(samples: Sequence[Sample]) -> list[Sample]:
    """Samples that an evaluation has cut short, joined to the next: a few milliseconds look like more than they are."""
    usual = statistics.median([sample.seconds for sample in samples]) if samples else 0.0
    joined: list[Sample] = []
    kept: Sample | None = None
    for sample in samples:
        kept = sample if kept is None else _together(kept, sample)
        if kept.seconds >= 0.5 * usual:
            joined.append(kept)
            kept = None
    if kept is not None:
        joined = [*joined[:-1], _together(joined[-1], kept)] if joined else [kept]
    return joined


def _together(first: Sample, second: Sample) -> Sample:
    def total(one: float | None, other: float | None) -> float | None:
        return None if one is None or other is None else one + other

    seconds = first.seconds + second.seconds
    return Sample(
        end=second.end,
        seconds=seconds,
        cpu_seconds=first.cpu_seconds + second.cpu_seconds,
        memory_bytes=second.memory_bytes,
        bytes_sent=total(first.bytes_sent, second.bytes_sent),
        bytes_received=total(first.bytes_received, second.bytes_received),
        watts=(first.watts * first.seconds + second.watts * second.seconds) / seconds,
        estimated=first.estimated or second.estimated,
    )
