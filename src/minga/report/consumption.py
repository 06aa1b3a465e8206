"""The energy of a run, from what its processes and the machine's counters wrote down.

    print(energy_of_run(ranks, machine))      # 1.23 kJ (estimated from CPU time)

What was measured goes before what was estimated. The time that counts is when at least one rank trains or serves: that
of the ranks' own samples, which leave out evaluations.
"""

from __future__ import annotations

from collections.abc import Sequence

from minga.measure.energy import FROM_CPU_TIME, Energy, PowerSample, joules_of, together
from minga.measure.events import Powered
from minga.report.follow import RankProgress

__all__ = ["energy_of_rank", "energy_of_run"]


def energy_of_rank(state: RankProgress) -> float | None:
    """Joules of a rank's process as a host of its own, estimated; None without samples."""
    if not state.samplings:
        return None
    return sum(_joules(PowerSample.from_event(event)) for event in state.samplings)


def energy_of_run(ranks: Sequence[RankProgress], machine: Sequence[Powered]) -> Energy | None:
    """Of the machine's counters, where there are some; otherwise the estimates of all processes together."""
    sampled = [PowerSample.from_event(event) for state in ranks for event in state.samplings]
    if not sampled:
        return None
    if machine:
        devices = {device for event in machine for device in event.watts}
        gpus = {device for device in devices if device.startswith("gpu-")}
        source = "+".join(name for name, some in (("rapl", devices - gpus), ("nvml", gpus)) if some)
        windows = together(sample.window for sample in sampled)
        joules = joules_of([PowerSample.from_event(event) for event in machine], windows)
        return Energy(joules, estimated=False, source=source)
    return Energy(sum(map(_joules, sampled)), estimated=True, source=FROM_CPU_TIME)


def _joules(sample: PowerSample) -> float:
    return sample.watts * sample.seconds
