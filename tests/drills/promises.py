"""What a run promises to those who harm it, and whether it was kept.

broken = Promise(recovery_seconds=2).broken(outcome)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

__all__ = ["Promise", "after_silence"]


@dataclass(frozen=True, kw_only=True)
class Promise:
    """None: nothing is promised."""

    recovery_seconds: float | None = 2.0
    """Until the next step of those who were not harmed."""
    lost_steps: float | None = 1.0
    """With local steps, a period. None: ranks are not in step, so what is owed was for the most part not begun."""
    points: float | None = 1.0
    """Of accuracy that may be missing at the end."""
    identical: bool = True
    """Those who come to the end have the same bits."""
    ideal: float | None = None
    """Of the steps that were done in the same time before."""
    at_the_end: int = 1
    """How many come to the end, at least."""

    def to_dict(self) -> dict[str, Any]:
        """What is promised, without what is not."""
        return {name: value for name, value in asdict(self).items() if value is not None and value is not False}

    def broken(self, found: Mapping[str, Any]) -> list[str]:
        """In words; empty if all was kept."""
        if not found["survived"]:
            return [found["problem"] or "it did not survive"]
        words = []
        recovery, lost, ideal = found["recovery_seconds"], found["lost_steps"], found.get("ideal")
        if self.recovery_seconds is not None:
            if recovery is None:
                words.append("nobody made a step afterwards")
            elif recovery > self.recovery_seconds:
                words.append(f"{recovery:.1f} s without a step, more than {self.recovery_seconds:g}")
        if self.lost_steps is not None and (lost is None or lost > self.lost_steps):
            words.append(f"{lost} steps lost, more than {self.lost_steps:g}")
        if self.points is not None and found["undisturbed"] is not None:
            missing = 100 * (found["undisturbed"] - (found["accuracy"] or 0.0))
            if missing > self.points:
                words.append(f"{missing:.1f} points of accuracy are missing, more than {self.points:g}")
        if self.identical and found["identical"] is False:
            words.append("those who came to the end have different bits")
        if self.ideal is not None and (ideal is None or ideal < self.ideal):
            words.append(f"{100 * (ideal or 0):.0f} % of the ideal steps, fewer than {100 * self.ideal:g}")
        if found["finished"] < self.at_the_end:
            words.append(f"{found['finished']} came to the end, fewer than {self.at_the_end}")
        return words


def after_silence(heartbeat_timeout_seconds: float, **more: Any) -> Promise:
    """Where nobody is told, it takes a heartbeat's deadline to notice."""
    return Promise(recovery_seconds=heartbeat_timeout_seconds + 2, **more)
