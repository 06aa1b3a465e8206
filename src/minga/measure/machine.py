"""What this machine offers for Minga, what is missing, and what to do about it.

    examination = examine(minga_version="0.1.0", threads_per_rank=1)
    examination.local_run_works

Nothing is changed and nothing is sent: it looks at files, asks libraries, and connects once to itself on loopback.
What can't be told is `unknown`, never guessed. Functions that read files take the `root` below which they look, so
that tests can show them other machines.
"""

from __future__ import annotations

import gzip
import importlib
import os
import platform
import shutil
import socket
import warnings
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal

import psutil  # type: ignore[import-untyped]

__all__ = [
    "Examination",
    "Finding",
    "State",
    "control_groups",
    "cores",
    "cpu_quota",
    "data_directory",
    "devices",
    "discipline",
    "disk",
    "energy",
    "examine",
    "has_capability",
    "loopback",
    "memory",
    "namespaces",
    "network",
    "outward_address",
    "threads",
    "traffic_shaping",
    "versions",
]

State = Literal["ok", "missing", "limited", "unknown"]

_ROOT = Path("/")
_DATA_SETS = ("mnist", "fashion-mnist", "flickr8k", "text")
_LITTLE = 1_000_000_000
"""Free bytes of memory or disk below which it gets tight: a rank takes about 0.25 GB before its model."""
_RIGHTS = {"CAP_SYS_ADMIN": 21, "CAP_NET_ADMIN": 12}
_AS_ROOT = "run as root (in a container: with --cap-add SYS_ADMIN --cap-add NET_ADMIN)"
_ELSEWHERE = "203.0.113.1"
"""An address kept for documentation: nobody's own network, so it is reached by the default route or not at all."""
_DISCIPLINES = {
    "tbf": ("limits bandwidth", "tbf rate 1mbit burst 32kbit latency 400ms"),
    "htb": ("shares bandwidth", "htb"),
    "netem": ("delays and loses packets", "netem delay 1ms"),
}
_WITHOUT_TORCH = ("can't be told without torch", "install torch first")


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing that was looked at."""

    topic: str
    """What it belongs to; findings of one topic are shown together."""

    name: str
    """What was looked at."""

    state: State
    """Whether it is there."""

    found: str
    """What was found, in words."""

    remedy: str = ""
    """What to do about it; empty when ok."""

    needed: bool = False
    """A local run can't do without it."""

    values: Mapping[str, Any] = field(default_factory=dict)
    """What was found as numbers and names, for programs."""

    def __post_init__(self) -> None:
        assert (self.state == "ok") == (not self.remedy), f"{self.name}: a remedy belongs to what is not ok"


@dataclass(frozen=True, kw_only=True)
class Examination:
    """Everything that was found on one machine."""

    findings: tuple[Finding, ...]
    """In the order of their topics."""

    @property
    def local_run_works(self) -> bool:
        return all(finding.state == "ok" for finding in self.findings if finding.needed)

    @property
    def counts(self) -> Mapping[State, int]:
        """How many findings are in each state."""
        states = [finding.state for finding in self.findings]
        return {state: states.count(state) for state in ("ok", "limited", "missing", "unknown")}


def examine(*, minga_version: str, threads_per_rank: int | None) -> Examination:
    """Look at everything; the caller knows Minga's own version and default."""
    looks: list[tuple[str, str, Callable[[], list[Finding]]]] = [
        ("versions", "torch", lambda: versions(minga_version)),
        ("processor", "cores", lambda: [cores()]),
        ("processor", "memory", lambda: [memory()]),
        ("processor", "threads per rank", lambda: [threads(threads_per_rank)]),
        ("devices", "gloo", devices),
        ("network", "loopback", lambda: [loopback()]),
        ("network", "interfaces", lambda: network(psutil.net_if_addrs(), psutil.net_if_stats(), outward_address())),
        ("lab", "network namespaces", lambda: [namespaces()]),
        ("lab", "shaping", traffic_shaping),
        ("lab", "CPU shares", lambda: [control_groups()]),
        ("energy", "counters", energy),
        ("data", "data directory", lambda: data_directory(os.environ.get("MINGA_DATA"))),
        ("data", "disk", lambda: [disk()]),
    ]
    findings: list[Finding] = []
    for topic, name, look in looks:
        try:
            findings += look()
        except Exception as error:  # a doctor must not die of what it looks at; tomorrow's machines surprise it
            found = f"looking failed: {type(error).__name__}: {_first_line(error)}"
            remedy = "this is an error in Minga; please report it with this line"
            if isinstance(error, OSError):
                remedy = "let this user and process read what the message names"
            needed = name in ("torch", "gloo", "loopback")
            findings.append(_finding(topic, name, "unknown", found, remedy, needed=needed))
    return Examination(findings=tuple(findings))


def versions(minga_version: str) -> list[Finding]:
    """Minga, Python, torch, operating system."""
    system, release, architecture = platform.system(), platform.release(), platform.machine()
    try:
        name = platform.freedesktop_os_release()["PRETTY_NAME"]
    except (OSError, KeyError):
        name = f"macOS {platform.mac_ver()[0]}" if system == "Darwin" else system
    found = f"{name}, kernel {system} {release}, {architecture}"
    values: dict[str, Any] = {"system": system, "distribution": name, "release": release, "architecture": architecture}
    if system in ("Linux", "Darwin"):
        machine = _finding("versions", "system", "ok", found, **values)
    else:
        remedy = "Minga is made for Linux and macOS; on Windows, use the Linux subsystem (WSL)"
        machine = _finding("versions", "system", "unknown", found, remedy, **values)
    return [
        _finding("versions", "Minga", "ok", minga_version, version=minga_version),
        _finding("versions", "Python", "ok", platform.python_version(), version=platform.python_version()),
        _torch_version(),
        machine,
    ]


def _torch_version() -> Finding:
    try:
        import torch
    except (ImportError, OSError) as error:  # OSError: one of its libraries can't be loaded
        found = f"can't be imported: {_first_line(error)}"
        remedy = "pip install torch (https://pytorch.org has the command for your GPU)"
        return _finding("versions", "torch", "missing", found, remedy, needed=True)
    version = str(torch.__version__)
    return _finding("versions", "torch", "ok", version, needed=True, version=version)


def cores(root: Path = _ROOT) -> Finding:
    """How many cores this process may use."""
    logical = os.cpu_count() or 1
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else logical
    physical = psutil.cpu_count(logical=False)
    quota = cpu_quota(root)
    finding = partial(_finding, "processor", "cores", usable=usable, logical=logical, physical=physical, quota=quota)
    found = f"{usable} usable of {logical}, {physical or 'unknown number of'} physical"
    if quota is not None and quota < usable:
        remedy = "give the container or service more CPU time, or count on that many nodes at full speed"
        return finding("limited", f"{found}; the control group grants the time of {quota:g}", remedy)
    if usable == 1:
        return finding("limited", found, "several nodes on this machine take turns: use more machines for speed")
    return finding("ok", found)


def memory() -> Finding:
    """Total and free memory."""
    now = psutil.virtual_memory()
    remedy = "end other programs or use fewer nodes; each takes about 0.25 GB before its model"
    return _space("processor", "memory", now.available, now.total, remedy)


def threads(default: int | None) -> Finding:
    """Threads of each rank by default; None: nobody knows."""
    if default is None:
        return _finding("processor", "threads per rank", "unknown", *_WITHOUT_TORCH)
    return _finding("processor", "threads per rank", "ok", f"{default} by default", default=default)


def devices() -> list[Finding]:
    """GPUs, and the backends that carry messages."""
    try:
        import torch
        import torch.distributed as distributed
    except (ImportError, OSError):
        backends = (("gloo", True), ("NCCL", False), ("GPU", False))
        return [_finding("devices", name, "unknown", *_WITHOUT_TORCH, needed=needed) for name, needed in backends]
    without = "this torch is built without it"
    if distributed.is_available() and distributed.is_gloo_available():
        gloo = _finding("devices", "gloo", "ok", "carries messages between CPUs", needed=True)
    else:
        remedy = "install an official build: pip install --force-reinstall torch"
        gloo = _finding("devices", "gloo", "missing", without, remedy, needed=True)
    if distributed.is_available() and distributed.is_nccl_available():
        nccl = _finding("devices", "NCCL", "ok", "carries messages between GPUs")
    else:
        nccl = _finding("devices", "NCCL", "missing", without, "to use GPUs, install a CUDA build of torch")
    with warnings.catch_warnings(record=True) as heard:  # torch says why a GPU can't be used only in a warning
        warnings.simplefilter("always")
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    gpus = [torch.cuda.get_device_properties(index) for index in range(count)]
    if gpus:
        return [gloo, nccl, *(_gpu(index, gpu.name, gpu.total_memory) for index, gpu in enumerate(gpus))]
    found, remedy = "torch finds none that it can use", "to use GPUs, see what nvidia-smi says"
    if torch.version.cuda is None and torch.version.hip is None:
        found, remedy = "this torch is built without CUDA", "to use GPUs, install a CUDA build of torch"
    elif heard:
        found += f": {_first_line(heard[0].message)}"
    return [gloo, nccl, _finding("devices", "GPU", "missing", found, remedy)]


def _gpu(index: int, model: str, nbytes: int) -> Finding:
    return _finding("devices", f"GPU {index}", "ok", f"{model}, {_size(nbytes)}", model=model, total_bytes=nbytes)


def loopback() -> Finding:
    """Whether this machine can talk to itself; binding alone succeeds even where loopback is down."""
    try:
        with socket.create_server(("127.0.0.1", 0), backlog=1) as server:
            with socket.create_connection(server.getsockname(), timeout=2):
                pass
    except OSError as error:
        found = f"can't connect to 127.0.0.1: {_first_line(error)}"
        remedy = "as root: ip link set lo up; else look for a firewall that forbids local connections"
        return _finding("network", "loopback", "missing", found, remedy, needed=True)
    return _finding("network", "loopback", "ok", "127.0.0.1 answers", needed=True)


def outward_address() -> str | None:
    """The address that a packet by the default route would leave from; none is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((_ELSEWHERE, 9))
        except OSError:
            return None
        return str(probe.getsockname()[0])


def network(addresses: Mapping[str, Iterable[Any]], stats: Mapping[str, Any], outward: str | None) -> list[Finding]:
    """Interfaces that are up, as psutil tells them, and the one that `outward` belongs to."""
    up: dict[str, list[str]] = {}
    for name, entries in addresses.items():
        ours = [entry.address for entry in entries if entry.family == socket.AF_INET]
        if ours and name in stats and stats[name].isup and not ours[0].startswith("127."):
            up[name] = ours
    findings = []
    for name, ours in up.items():
        # Drivers of virtual and wireless interfaces say 0, or -1, which older versions of psutil show as 65535.
        speed = stats[name].speed if stats[name].speed not in (0, -1, 65535) else None
        found = f"{', '.join(ours)}; " + (f"{speed:,} Mbit/s" if speed else "speed unknown")
        values: dict[str, Any] = {"addresses": ours, "megabits_per_second": speed}
        findings.append(_finding("network", f"interface {name}", "ok", found, **values))
    if outward is not None:
        used = next((name for name, ours in up.items() if outward in ours), None)
        found = f"{used or 'unknown interface'}, {outward} (default route)"
        return [*findings, _finding("network", "to others", "ok", found, interface=used, address=outward)]
    remedy = "for runs on several machines, connect this one to their network"
    if up:
        found = f"no default route; only machines in the networks of {', '.join(up)}"
        return [*findings, _finding("network", "to others", "limited", found, remedy)]
    return [_finding("network", "to others", "missing", "no interface but loopback is up with an address", remedy)]


def has_capability(status: str, number: int) -> bool | None:
    """Whether `/proc/self/status` shows a capability as effective; None where it says nothing about it."""
    for line in status.splitlines():
        name, _, value = line.partition(":")
        if name == "CapEff":
            try:
                return bool(int(value.strip(), 16) >> number & 1)
            except ValueError:
                return None
    return None


def namespaces(root: Path = _ROOT, system: str | None = None) -> Finding:
    """Whether network namespaces can be made; none is."""
    name = "network namespaces"
    if (system or platform.system()) != "Linux":
        return _linux_only(name)
    finding = partial(_finding, "lab", name)
    status = _read(root / "proc/self/status")
    if status is None:
        return finding("unknown", "/proc can't be read", "as root: mount -t proc proc /proc")
    if not (root / "proc/self/ns/net").exists():
        return finding("missing", "the kernel is built without them", "use a kernel with CONFIG_NET_NS")
    if _read(root / "proc/sys/user/max_net_namespaces") == "0":
        return finding("missing", "forbidden by a limit of 0", "as root: sysctl -w user.max_net_namespaces=1000")
    rights = [has_capability(status, number) for number in _RIGHTS.values()]
    if all(rights):
        return finding("ok", f"can be made, with {' and '.join(_RIGHTS)}")
    if None in rights:
        return finding("unknown", "/proc/self/status shows no capabilities", "try, as root: unshare --net true")
    lacking = f"no {' and '.join(name for name, right in zip(_RIGHTS, rights, strict=True) if not right)}"
    forbidden = {
        "kernel.unprivileged_userns_clone": ("0", "1"),
        "user.max_user_namespaces": ("0", "10000"),
        "kernel.apparmor_restrict_unprivileged_userns": ("1", "0"),
    }
    for setting, (forbids, allows) in forbidden.items():
        if _read(root / "proc/sys" / setting.replace(".", "/")) == forbids:
            remedy = f"{_AS_ROOT}, or let ordinary users make them: sysctl -w {setting}={allows}"
            return finding("missing", f"{lacking}, and {setting} is {forbids}", remedy)
    if not (root / "proc/self/ns/user").exists():
        return finding("missing", f"{lacking}, and the kernel has no user namespaces", _AS_ROOT)
    inside = "unshare --user --map-root-user --net --mount"
    if "Seccomp:\t2" in status:
        return finding("unknown", f"{lacking}, and a seccomp filter may forbid the rest", f"try: {inside} true")
    return finding("limited", f"{lacking}: only inside a user namespace", f"{_AS_ROOT}, or inside: {inside}")


def traffic_shaping(root: Path = _ROOT, system: str | None = None, release: str | None = None) -> list[Finding]:
    """Which queueing disciplines the kernel has, as far as its lists of modules and its configuration tell."""
    if (system or platform.system()) != "Linux":
        return [_linux_only(f"shaping: {name}") for name in _DISCIPLINES]
    release = release or platform.release()
    modules = root / "lib/modules" / release
    sources = {
        "loaded": _read(root / "proc/modules"),
        "built_in": _read(modules / "modules.builtin"),
        "installed": _read(modules / "modules.dep"),
        "configuration": _read(root / "proc/config.gz") or _read(root / "boot" / f"config-{release}"),
    }
    return [discipline(name, **sources) for name in _DISCIPLINES]


def discipline(
    name: str,
    *,
    loaded: str | None = None,
    built_in: str | None = None,
    installed: str | None = None,
    configuration: str | None = None,
) -> Finding:
    """Whether the kernel has a discipline, by the texts of /proc/modules, modules.builtin, modules.dep and the
    kernel's configuration; None: there is no such file."""
    purpose, trial = _DISCIPLINES[name]
    module, option = f"sch_{name}", f"CONFIG_NET_SCH_{name.upper()}"
    lines = (configuration or "").splitlines()
    install = "install the kernel's extra modules (Ubuntu: linux-modules-extra, Fedora: kernel-modules-extra)"
    attempt = f"try, as root; it leaves nothing behind: unshare --net tc qdisc add dev lo root {trial}"
    state: State = "ok"
    remedy = ""
    if module in {line.split(" ")[0] for line in (loaded or "").splitlines()}:
        found = "loaded as a module"
    elif f"{option}=y" in lines or module in _module_names(built_in):
        found = "built into the kernel"
    elif module in _module_names(installed):
        found = "installed as a module"
    elif f"{option}=m" in lines and installed is not None:
        state, found, remedy = "missing", "a module that is not installed", install
    elif f"{option}=m" in lines:
        state, found, remedy = "unknown", "a module; which ones are installed can't be seen", attempt
    elif lines:  # "is not set", or left out because what it depends on is not set
        state, found, remedy = "missing", "the kernel is built without it", f"use a kernel with {option}"
    elif built_in is not None and installed is not None:
        state, found, remedy = "missing", "neither built into the kernel nor installed as a module", install
    else:
        state, found, remedy = "unknown", "the kernel does not show what it is built with", attempt
    return _finding("lab", f"shaping: {name}", state, f"{purpose}; {found}", remedy)


def _module_names(listing: str | None) -> set[str]:
    """From lines such as `kernel/net/sched/sch_tbf.ko.zst: kernel/...`, only what is before the colon."""
    paths = (line.partition(":")[0] for line in (listing or "").splitlines())
    return {path.rpartition("/")[2].partition(".ko")[0].replace("-", "_") for path in paths}


def _cpu_groups(root: Path) -> tuple[int, list[Path]]:
    """The version of control groups that has the CPU (0: none), and this process's group with all above it."""
    top = root / "sys/fs/cgroup"
    parts = (line.split(":", 2) for line in (_read(root / "proc/self/cgroup") or "").splitlines())
    paths = {part[1]: part[2] for part in parts if len(part) == 3}  # by controllers; version 2 has the empty name
    if (top / "cgroup.controllers").exists():
        version, path = 2, paths.get("", "/")
    else:
        mounted = next((names for names in paths if "cpu" in names.split(",") and (top / names).is_dir()), None)
        if mounted is None:
            return 0, []
        version, path, top = 1, paths[mounted], top / mounted
    # In a container the path can be the host's, of which only the upper part exists here, or lead out of it.
    own = top if ".." in path else top / path.strip("/")
    return version, [group for group in (own, *own.parents) if group.is_relative_to(top) and group.is_dir()]


def cpu_quota(root: Path = _ROOT) -> float | None:
    """The cores' worth of time that control groups grant this process; None: no limit."""
    version, groups = _cpu_groups(root)
    quotas = []
    for group in groups:
        if version == 2:
            words = (_read(group / "cpu.max") or "").split()
        else:
            words = [_read(group / f"cpu.cfs_{name}_us") or "" for name in ("quota", "period")]
        if len(words) == 2 and all(word.isdigit() for word in words):  # no limit: "max" or -1
            quotas.append(int(words[0]) / int(words[1]))
    return min(quotas, default=None)


def control_groups(root: Path = _ROOT, system: str | None = None) -> Finding:
    """Whether hosts of a lab can be given shares of the CPU."""
    name = "CPU shares"
    if (system or platform.system()) != "Linux":
        return _linux_only(name)
    version, groups = _cpu_groups(root)
    finding = partial(_finding, "lab", name, version=version)
    found = f"control groups version {version}"
    delegate = "run as root, or in: systemd-run --user --scope --property=Delegate=yes"
    if not version:
        return finding("missing", "no control groups with a cpu controller", "mount them at /sys/fs/cgroup")
    if version == 2:
        own, top = ((_read(group / "cgroup.controllers") or "").split() for group in (groups[0], groups[-1]))
        if "cpu" not in top:
            return finding("missing", f"{found} without the cpu controller", "let the host or container pass it on")
        if "cpu" not in own:
            return finding("limited", f"{found}; no cpu controller in this process's group", delegate)
    if not os.access(groups[0], os.W_OK):
        return finding("limited", f"{found} with a cpu controller that this user can't change", delegate)
    return finding("ok", f"{found} with the cpu controller")


def energy(root: Path = _ROOT) -> list[Finding]:
    """Energy counters of the processor and of GPUs."""
    finding = partial(_finding, "energy", "processor (RAPL)")
    zones = sorted((root / "sys/class/powercap").glob("intel-rapl*/energy_uj"))
    readable = [zone for zone in zones if (_read(zone) or "").isdigit()]
    names = [_read(zone.parent / "name") or zone.parent.name for zone in readable]
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


def _nvml() -> Finding:
    finding = partial(_finding, "energy", "GPU (NVML)")
    try:
        with warnings.catch_warnings():  # the older package of that name warns that there is a newer one
            warnings.simplefilter("ignore")
            nvml = importlib.import_module("pynvml")
    except ImportError:
        return finding("missing", "pynvml is not installed", "for NVIDIA GPUs, pip install nvidia-ml-py")
    try:
        nvml.nvmlInit()
        try:
            count = int(nvml.nvmlDeviceGetCount())
            for index in range(count):
                nvml.nvmlDeviceGetTotalEnergyConsumption(nvml.nvmlDeviceGetHandleByIndex(index))
        finally:
            nvml.nvmlShutdown()
    except nvml.NVMLError as error:
        remedy = "for NVIDIA GPUs, install their driver; those before Volta have no counter"
        return finding("missing", f"no counter can be read: {_first_line(error)}", remedy)
    if not count:
        return finding("missing", "no GPU", "for NVIDIA GPUs, see what nvidia-smi says")
    return finding("ok", f"counters of {count} GPU{'s' if count > 1 else ''}", gpus=count)


def data_directory(setting: str | None) -> list[Finding]:
    """The directory that MINGA_DATA names, and what is in it."""
    finding = partial(_finding, "data", "data directory")
    if not setting:
        remedy = "export MINGA_DATA=DIR, or give --data DIR; the workload digits needs no data"
        return [finding("missing", "MINGA_DATA is not set", remedy)]
    directory = Path(setting)
    if not directory.is_dir():
        remedy = f"mkdir -p {directory}, or set MINGA_DATA to another"
        return [finding("missing", f"{directory} (MINGA_DATA) is not a directory", remedy, directory=setting)]
    there = [name for name in _DATA_SETS if _has_entries(directory / name)]
    lacking = [name for name in _DATA_SETS if name not in there]
    found, remedy = ", ".join(there) or "none", ""
    state: State = "ok"
    if lacking:
        state = "limited" if there else "missing"
        found += f"; not there: {', '.join(lacking)}"
        remedy = f"if you need them, put their files into directories such as {directory / lacking[0]}"
    return [
        finding("ok", f"{directory} (MINGA_DATA)", directory=setting),
        _finding("data", "data sets", state, found, remedy, found=there, lacking=lacking),
    ]


def disk() -> Finding:
    """Free space where run directories go by default."""
    try:
        usage = shutil.disk_usage(".")
    except OSError as error:
        return _finding("data", "disk", "unknown", _first_line(error), "change to a directory that exists")
    return _space("data", "disk", usage.free, usage.total, "free some space, or give --runs DIR on another disk")


def _finding(
    topic: str, name: str, state: State, text: str, remedy: str = "", /, *, needed: bool = False, **values: Any
) -> Finding:
    return Finding(topic=topic, name=name, state=state, found=text, remedy=remedy, needed=needed, values=values)


def _space(topic: str, name: str, free: int, total: int, remedy: str) -> Finding:
    found = f"{_size(free)} free of {_size(total)}"
    if free < _LITTLE:
        return _finding(topic, name, "limited", found, remedy, free_bytes=free, total_bytes=total)
    return _finding(topic, name, "ok", found, free_bytes=free, total_bytes=total)


def _linux_only(name: str) -> Finding:
    return _finding("lab", name, "missing", "only Linux has it", "for labs, use Linux, also in a virtual machine")


def _read(path: Path) -> str | None:
    """A small file's text without the space around it; None where it is not there or not for us."""
    try:
        content = path.read_bytes()
        return (gzip.decompress(content) if path.suffix == ".gz" else content).decode(errors="replace").strip()
    except (OSError, EOFError, zlib.error):
        return None


def _has_entries(directory: Path) -> bool:
    try:
        return any(directory.iterdir())
    except OSError:
        return False


def _first_line(message: object) -> str:
    """Libraries explain at length; the first line says what it is."""
    return next(iter(str(message).strip().splitlines()), type(message).__name__)


def _size(nbytes: float) -> str:
    return f"{nbytes / 1e9:.1f} GB"
