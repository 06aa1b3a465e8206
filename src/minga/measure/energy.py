"""Energy: from power samples, over the time of training, with its mark where it is an estimate.

    energy = Energy(joules_of(samples, windows), estimated=True, source=FROM_CPU_TIME)
    print(energy)                             # 1.23 kJ (estimated from CPU time)
    energy.delay_product(seconds)             # joule-seconds

As in the thesis of Cantabria: energy is the sum of power samples, each times its interval, and the energy-delay
product (EDP) is energy times time. Both are of training alone: starting, evaluating and ending don't count.

**What is counted.** Of counters: all processor packages and their memory, busy or idle, with whatever else the machine
does at that time, and for training on GPUs all GPUs of the machine, the idle ones too; not the rest of the machine
(disks, fans, losses of the power supply). Of estimates: every process of a run stands for a host of its own, which
takes `idle_watts` as long as it trains or serves, waiting included, and `core_watts` for each core that it keeps busy.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from minga.measure.events import Powered, Sampled

__all__ = ["FROM_CPU_TIME", "Energy", "PowerSample", "estimated_watts", "joules_of", "together"]

FROM_CPU_TIME = "estimated from CPU time"

Window = tuple[float, float]


@dataclass(frozen=True)
class Energy:
    """An amount of energy that can't be shown without saying whether it is an estimate."""

    joules: float
    estimated: bool
    source: str
    """rapl, nvml, rapl+nvml, or `FROM_CPU_TIME`."""

    def __post_init__(self) -> None:
        assert self.estimated == ("estimated" in self.source), f"{self.source!r} does not say what this is"

    def __str__(self) -> str:
        return f"{_amount(self.joules, 'J')} ({self.source})"

    def delay_product(self, seconds: float) -> float:
        """The energy-delay product in joule-seconds: less is better, and neither slow nor hungry is good."""
        return self.joules * seconds

    def describe_delay_product(self, seconds: float) -> str:
        """The energy-delay product for people, with the mark of the energy that it comes from."""
        return f"{_amount(self.delay_product(seconds), 'Js')} ({self.source})"

    def to_dict(self) -> dict[str, Any]:
        return {"joules": self.joules, "estimated": self.estimated, "source": self.source}


@dataclass(frozen=True)
class PowerSample:
    """The mean power of the `seconds` before `time`."""

    time: float
    seconds: float
    watts: float

    @classmethod
    def from_event(cls, event: Sampled | Powered) -> PowerSample:
        """The devices of the machine are added up."""
        watts = event.watts if isinstance(event, Sampled) else sum(event.watts.values())
        return cls(event.time, event.seconds, watts)

    @property
    def window(self) -> Window:
        return self.time - self.seconds, self.time


def joules_of(samples: Iterable[PowerSample], windows: Sequence[Window]) -> float:
    """The sum of power times interval; of a sample that is partly outside of all windows, the part inside.

    `windows` must not overlap: see `together`.
    """
    joules = 0.0
    for sample in samples:
        begin, end = sample.window
        inside = sum(max(0.0, min(end, stop) - max(begin, start)) for start, stop in windows)
        joules += sample.watts * inside
    return joules


def together(windows: Iterable[Window]) -> list[Window]:
    """The time that is in any of the windows, as windows that don't overlap."""
    joined: list[Window] = []
    for start, stop in sorted(windows):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(stop, joined[-1][1]))
        else:
            joined.append((start, stop))
    return joined


def estimated_watts(cpu_seconds: float, seconds: float, *, idle_watts: float, core_watts: float) -> float:
    """Of a host whose process used so much CPU time in that time."""
    return idle_watts + core_watts * cpu_seconds / seconds


def _amount(value: float, unit: str) -> str:
    for prefix, size in (("M", 1e6), ("k", 1e3)):
        if value >= size:
            return f"{value / size:.2f} {prefix}{unit}"
    return f"{value:.1f} {unit}"
