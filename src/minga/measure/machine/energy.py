"""Energy counters: RAPL of the processor, NVML of GPUs.

    processor, gpus = energy()

Where there are none, the processor's energy is estimated from CPU time.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from minga.measure.counters import Nvml
from minga.measure.kernel import ROOT, read
from minga.measure.machine.findings import MachineFinding, first_line, make_finding

__all__ = ["energy"]


def energy(root: Path = ROOT) -> list[MachineFinding]:
    """Energy counters of the processor and of GPUs."""
    finding = partial(make_finding, "energy", "processor (RAPL)")
    zones = sorted((root / "sys/class/powercap").glob("intel-rapl*/energy_uj"))
    readable = [zone for zone in zones if (read(zone) or "").isdigit()]
    names = [read(zone.parent / "name") or zone.parent.name for zone in readable]
    estimate = "the processor's energy will be estimated from CPU time"
    if not zones:
        remedy = "nothing, if estimates are enough; only real Intel and AMD machines with Linux have them"
        rapl = finding("missing", f"no counters; {estimate}", remedy, readable=names)
    elif len(readable) < len(zones):
        found = f"{len(readable)} of {len(zones)} counters can be read" + ("" if readable else f"; {estimate}")
        remedy = "as root, until the next boot, for all users: chmod a+r /sys/class/powercap/intel-rapl*/energy_uj"
        rapl = finding("limited", found, remedy, readable=names)
    else:
        rapl = finding("ok", f"counters of {', '.join(names)}", readable=names)
    return [rapl, _nvml()]


def _nvml() -> MachineFinding:
    finding = partial(make_finding, "energy", "GPU (NVML)")
    try:
        counter = Nvml()
    except ImportError:
        return finding("missing", "pynvml is not installed", "for NVIDIA GPUs, pip install nvidia-ml-py")
    except Exception as error:  # NVMLError, which can't be named before pynvml is imported
        remedy = "for NVIDIA GPUs, install their driver; those before Volta have no counter"
        return finding("missing", f"no counter can be read: {first_line(error)}", remedy)
    count = len(counter.joules())
    counter.close()
    if not count:
        return finding("missing", "no GPU", "for NVIDIA GPUs, see what nvidia-smi says")
    return finding("ok", f"counters of {count} GPU{'s' if count > 1 else ''}", gpus=count)
