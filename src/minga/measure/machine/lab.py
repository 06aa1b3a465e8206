"""What hosts with shaped links need: network namespaces, queueing disciplines, shares of the CPU.

    namespaces().state

Linux only. Nothing is made or loaded: only the kernel's own files are read.
"""

from __future__ import annotations

import importlib.util
import os
import platform
from functools import partial
from pathlib import Path

from minga.measure.kernel import ROOT, cpu_groups, read
from minga.measure.machine.findings import MachineFinding, State, make_finding

__all__ = [
    "control_groups",
    "discipline",
    "has_capability",
    "namespaces",
    "netlink_library",
    "relay",
    "traffic_shaping",
]

_RIGHTS = {"CAP_SYS_ADMIN": 21, "CAP_NET_ADMIN": 12}
_AS_ROOT = "run as root (in a container: with --cap-add SYS_ADMIN --cap-add NET_ADMIN)"
_DISCIPLINES = {
    "tbf": ("limits bandwidth", "tbf rate 1mbit burst 32kbit latency 400ms"),
    "htb": ("shares bandwidth", "htb"),
    "netem": ("delays and loses packets (without it, a relay in user space does)", "netem delay 1ms"),
}


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


def namespaces(root: Path = ROOT, system: str | None = None) -> MachineFinding:
    """Whether network namespaces can be made; none is."""
    name = "network namespaces"
    if (system or platform.system()) != "Linux":
        return _linux_only(name)
    finding = partial(make_finding, "lab", name)
    status = read(root / "proc/self/status")
    if status is None:
        return finding("unknown", "/proc can't be read", "as root: mount -t proc proc /proc")
    if not (root / "proc/self/ns/net").exists():
        return finding("missing", "the kernel is built without them", "use a kernel with CONFIG_NET_NS")
    if read(root / "proc/sys/user/max_net_namespaces") == "0":
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
        if read(root / "proc/sys" / setting.replace(".", "/")) == forbids:
            remedy = f"{_AS_ROOT}, or let ordinary users make them: sysctl -w {setting}={allows}"
            return finding("missing", f"{lacking}, and {setting} is {forbids}", remedy)
    if not (root / "proc/self/ns/user").exists():
        return finding("missing", f"{lacking}, and the kernel has no user namespaces", _AS_ROOT)
    inside = "unshare --user --map-root-user --net --mount"
    if "Seccomp:\t2" in status:
        return finding("unknown", f"{lacking}, and a seccomp filter may forbid the rest", f"try: {inside} true")
    return finding("limited", f"{lacking}: only inside a user namespace", f"{_AS_ROOT}, or inside: {inside}")


def traffic_shaping(root: Path = ROOT, system: str | None = None, release: str | None = None) -> list[MachineFinding]:
    """Which queueing disciplines the kernel has, as far as its lists of modules and its configuration show."""
    if (system or platform.system()) != "Linux":
        return [_linux_only(f"shaping: {name}") for name in _DISCIPLINES]
    release = release or platform.release()
    modules = root / "lib/modules" / release
    sources = {
        "loaded": read(root / "proc/modules"),
        "built_in": read(modules / "modules.builtin"),
        "installed": read(modules / "modules.dep"),
        "configuration": read(root / "proc/config.gz") or read(root / "boot" / f"config-{release}"),
    }
    return [discipline(name, **sources) for name in _DISCIPLINES]


def discipline(
    name: str,
    *,
    loaded: str | None = None,
    built_in: str | None = None,
    installed: str | None = None,
    configuration: str | None = None,
) -> MachineFinding:
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
    return make_finding("lab", f"shaping: {name}", state, f"{purpose}; {found}", remedy)


def _module_names(listing: str | None) -> set[str]:
    """From lines such as `kernel/net/sched/sch_tbf.ko.zst: kernel/...`, only what is before the colon."""
    paths = (line.partition(":")[0] for line in (listing or "").splitlines())
    return {path.rpartition("/")[2].partition(".ko")[0].replace("-", "_") for path in paths}


def relay(root: Path = ROOT, system: str | None = None) -> MachineFinding:
    """Whether delays work on a kernel without netem: a relay in user space needs a TAP device."""
    name = "delays in user space"
    if (system or platform.system()) != "Linux":
        return _linux_only(name)
    device = root / "dev/net/tun"
    if not device.exists():
        return make_finding("lab", name, "missing", "no /dev/net/tun", "as root: modprobe tun")
    if not os.access(device, os.R_OK | os.W_OK):
        remedy = "run as root, or as root, for all users: chmod a+rw /dev/net/tun"
        return make_finding("lab", name, "limited", "/dev/net/tun is not for this user", remedy)
    return make_finding("lab", name, "ok", "/dev/net/tun can be used")


def netlink_library() -> MachineFinding:
    """Whether the library that labs talk to the kernel with is installed."""
    name = "netlink library"
    if importlib.util.find_spec("pyroute2") is None:
        return make_finding("lab", name, "missing", "pyroute2 is not installed", "pip install 'minga[lab]'")
    return make_finding("lab", name, "ok", "pyroute2 is installed")


def control_groups(root: Path = ROOT, system: str | None = None) -> MachineFinding:
    """Whether hosts of a lab can be given shares of the CPU."""
    name = "CPU shares"
    if (system or platform.system()) != "Linux":
        return _linux_only(name)
    version, groups = cpu_groups(root)
    finding = partial(make_finding, "lab", name, version=version)
    found = f"control groups version {version}"
    delegate = "run as root, or in: systemd-run --user --scope --property=Delegate=yes"
    if not version:
        return finding("missing", "no control groups with a cpu controller", "mount them at /sys/fs/cgroup")
    if version == 2:
        own, top = ((read(group / "cgroup.controllers") or "").split() for group in (groups[0], groups[-1]))
        if "cpu" not in top:
            return finding("missing", f"{found} without the cpu controller", "let the host or container pass it on")
        if "cpu" not in own:
            return finding("limited", f"{found}; no cpu controller in this process's group", delegate)
    if not os.access(groups[0], os.W_OK):
        return finding("limited", f"{found} with a cpu controller that this user can't change", delegate)
    return finding("ok", f"{found} with the cpu controller")


def _linux_only(name: str) -> MachineFinding:
    return make_finding("lab", name, "missing", "only Linux has it", "for labs, use Linux, also in a virtual machine")
