"""What the doctor sees on machines that are not this one: sample texts, and directories in place of /proc and /sys."""

from __future__ import annotations

import gzip
import os
import platform
import socket
import sys
import tempfile
import types
import warnings
from collections import namedtuple
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch

from minga.measure import machine
from minga.measure.machine import Examination, Finding

SYS_ADMIN, NET_ADMIN = 21, 12
ALL_RIGHTS = "Name:\tpython\nCapPrm:\t0000000000000000\nCapEff:\t000001ffffffffff\nSeccomp:\t0\n"
NO_RIGHTS = "Name:\tpython\nCapPrm:\t000001ffffffffff\nCapEff:\t0000000000000000\nSeccomp:\t0\n"
DOCKER_ROOT = "Name:\tpython\nCapEff:\t00000000a80425fb\nSeccomp:\t2\n"
LOADED = "sch_tbf 16384 1 - Live 0x0000000000000000\nveth 45056 0 - Live 0x0000000000000000\n"
BUILT_IN = "kernel/net/sched/sch_htb.ko\nkernel/fs/ext4/ext4.ko\n"
INSTALLED = "kernel/net/sched/sch_netem.ko.zst: kernel/net/sched/sch_generic.ko.zst\nkernel/drivers/net/veth.ko.zst:\n"
CONFIGURATION = "CONFIG_NET_SCH_HTB=y\nCONFIG_NET_SCH_TBF=m\n# CONFIG_NET_SCH_NETEM is not set\n"

Address = namedtuple("Address", "family address")
Stats = namedtuple("Stats", "isup speed")


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


@contextmanager
def ordinary_user() -> Iterator[None]:
    """Root may read everything, so tests of what can't be read become somebody else for a moment."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


# capabilities and namespaces


@pytest.mark.parametrize(
    ("status", "number", "expected"),
    [
        (ALL_RIGHTS, SYS_ADMIN, True),
        (NO_RIGHTS, SYS_ADMIN, False),
        ("CapEff:\t0000000000200000", SYS_ADMIN, True),
        ("CapEff:\t0000000000200000", NET_ADMIN, False),
        ("CapEff:\t00000000ffdfffff", SYS_ADMIN, False),
        ("CapPrm:\t000001ffffffffff", SYS_ADMIN, None),
        ("CapEff:\tnonsense", SYS_ADMIN, None),
        ("", SYS_ADMIN, None),
    ],
)
def test_a_capability_is_one_bit_of_the_effective_set(status: str, number: int, expected: bool | None) -> None:
    assert machine.has_capability(status, number) is expected


@pytest.mark.parametrize(
    ("files", "state", "says"),
    [
        ({"proc/self/status": ALL_RIGHTS}, "ok", ""),
        ({"proc/self/status": ALL_RIGHTS, "proc/sys/user/max_net_namespaces": "0\n"}, "missing", "max_net_namespaces"),
        ({"proc/self/status": NO_RIGHTS}, "limited", "unshare --user"),
        ({"proc/self/status": DOCKER_ROOT}, "unknown", "try: unshare"),
        ({"proc/self/status": NO_RIGHTS, "proc/sys/user/max_user_namespaces": "0\n"}, "missing", "max_user_namespaces"),
        ({"proc/self/status": NO_RIGHTS, "proc/sys/user/max_user_namespaces": "9\n"}, "limited", "unshare --user"),
        (
            {"proc/self/status": NO_RIGHTS, "proc/sys/kernel/unprivileged_userns_clone": "0\n"},
            "missing",
            "kernel.unprivileged_userns_clone=1",
        ),
        (
            {"proc/self/status": NO_RIGHTS, "proc/sys/kernel/apparmor_restrict_unprivileged_userns": "1\n"},
            "missing",
            "kernel.apparmor_restrict_unprivileged_userns=0",
        ),
        ({"proc/self/status": "Name:\tpython\n"}, "unknown", "unshare --net true"),
    ],
)
def test_namespaces_follow_rights_and_settings(tmp_path: Path, files: dict[str, str], state: str, says: str) -> None:
    write(tmp_path, {"proc/self/ns/net": "", "proc/self/ns/user": "", **files})
    finding = machine.namespaces(tmp_path, system="Linux")
    assert finding.state == state
    assert says in finding.remedy


def test_rights_do_not_help_where_the_kernel_has_no_namespaces(tmp_path: Path) -> None:
    write(tmp_path, {"proc/self/status": ALL_RIGHTS})
    assert machine.namespaces(tmp_path, system="Linux").state == "missing"


def test_namespaces_name_the_right_that_is_lacking(tmp_path: Path) -> None:
    write(tmp_path, {"proc/self/ns/net": "", "proc/self/ns/user": "", "proc/self/status": "CapEff:\t0000000000200000"})
    finding = machine.namespaces(tmp_path, system="Linux")
    assert finding.state == "limited"
    assert finding.found.startswith("no CAP_NET_ADMIN:")


@pytest.mark.skipif(not Path("/proc/self/ns/net").exists(), reason="needs Linux with /proc")
def test_looking_at_namespaces_makes_none() -> None:
    ours = Path("/proc/self/ns/net")
    before = ours.stat().st_ino
    machine.namespaces()
    assert ours.stat().st_ino == before


# traffic shaping


@pytest.mark.parametrize(
    ("name", "sources", "state"),
    [
        ("tbf", {"loaded": LOADED}, "ok"),
        ("htb", {"loaded": LOADED, "built_in": BUILT_IN}, "ok"),
        ("netem", {"installed": INSTALLED}, "ok"),
        ("netem", {"installed": INSTALLED.replace(".zst", "")}, "ok"),
        ("htb", {"configuration": CONFIGURATION}, "ok"),
        # Not loaded yet says nothing, and neither does one list without the other.
        ("netem", {}, "unknown"),
        ("netem", {"loaded": LOADED}, "unknown"),
        ("tbf", {"built_in": BUILT_IN}, "unknown"),
        ("tbf", {"installed": INSTALLED}, "unknown"),
        ("tbf", {"built_in": BUILT_IN, "installed": INSTALLED}, "missing"),
        # The configuration decides, but a module has to be there as well.
        ("netem", {"configuration": CONFIGURATION}, "missing"),
        ("tbf", {"configuration": CONFIGURATION}, "unknown"),
        ("tbf", {"configuration": CONFIGURATION, "installed": INSTALLED}, "missing"),
        ("tbf", {"configuration": CONFIGURATION, "loaded": LOADED}, "ok"),
        # A module that others depend on is named after the colon too; that is not its own line.
        ("netem", {"built_in": "", "installed": "kernel/other.ko: kernel/net/sched/sch_netem.ko"}, "missing"),
    ],
)
def test_a_discipline_is_there_missing_or_unknown(name: str, sources: dict[str, str], state: str) -> None:
    assert machine.discipline(name, **sources).state == state


def test_traffic_shaping_reads_the_files_of_the_running_kernel(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "proc/modules": LOADED,
            "lib/modules/6.1.0/modules.builtin": BUILT_IN,
            "lib/modules/6.1.0/modules.dep": "",
            "lib/modules/5.0.0/modules.dep": INSTALLED,
        },
    )
    states = {f.name: f.state for f in machine.traffic_shaping(tmp_path, system="Linux", release="6.1.0")}
    assert states == {"shaping: tbf": "ok", "shaping: htb": "ok", "shaping: netem": "missing"}


@pytest.mark.parametrize("place", ["proc/config.gz", "boot/config-6.1.0"])
def test_traffic_shaping_reads_the_configuration(tmp_path: Path, place: str) -> None:
    content = CONFIGURATION.encode()
    (tmp_path / place).parent.mkdir(parents=True)
    (tmp_path / place).write_bytes(gzip.compress(content) if place.endswith(".gz") else content)
    findings = machine.traffic_shaping(tmp_path, system="Linux", release="6.1.0")
    assert [finding.state for finding in findings] == ["unknown", "ok", "missing"]
    assert "tc qdisc add" in findings[0].remedy
    assert "CONFIG_NET_SCH_NETEM" in findings[2].remedy


def test_a_damaged_configuration_is_no_configuration(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/config.gz").write_bytes(gzip.compress(CONFIGURATION.encode())[:30])
    assert {f.state for f in machine.traffic_shaping(tmp_path, system="Linux", release="6.1.0")} == {"unknown"}


# control groups


def test_control_groups_of_version_2(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "proc/self/cgroup": "0::/user.slice/mine.scope\n",
            "sys/fs/cgroup/cgroup.controllers": "cpuset cpu io memory\n",
            "sys/fs/cgroup/user.slice/mine.scope/cgroup.controllers": "cpu memory\n",
        },
    )
    finding = machine.control_groups(tmp_path, system="Linux")
    assert (finding.state, finding.values["version"]) == ("ok", 2)
    write(tmp_path, {"sys/fs/cgroup/user.slice/mine.scope/cgroup.controllers": "memory\n"})
    assert machine.control_groups(tmp_path, system="Linux").state == "limited"
    write(tmp_path, {"sys/fs/cgroup/cgroup.controllers": "cpuset memory\n"})
    assert machine.control_groups(tmp_path, system="Linux").state == "missing"


@pytest.mark.parametrize("mounted", ["cpu", "cpu,cpuacct"])
def test_control_groups_of_version_1(tmp_path: Path, mounted: str) -> None:
    write(tmp_path, {"proc/self/cgroup": f"5:memory:/far/away\n1:{mounted}:/\n0::/\n"})
    assert machine.control_groups(tmp_path, system="Linux").state == "missing"
    (tmp_path / "sys/fs/cgroup" / mounted).mkdir(parents=True)
    finding = machine.control_groups(tmp_path, system="Linux")
    assert (finding.state, finding.values["version"]) == ("ok", 1)


def test_a_cpuset_controller_is_not_a_cpu_controller(tmp_path: Path) -> None:
    write(tmp_path, {"proc/self/cgroup": "1:cpuset:/\n"})
    (tmp_path / "sys/fs/cgroup/cpuset").mkdir(parents=True)
    assert machine.control_groups(tmp_path, system="Linux").state == "missing"


def test_the_smallest_quota_on_the_way_up_counts(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "proc/self/cgroup": "0::/pod/container\n",
            "sys/fs/cgroup/cgroup.controllers": "cpu\n",
            "sys/fs/cgroup/pod/cpu.max": "150000 100000\n",
            "sys/fs/cgroup/pod/container/cpu.max": "max 100000\n",
        },
    )
    assert machine.cpu_quota(tmp_path) == 1.5
    write(tmp_path, {"sys/fs/cgroup/pod/container/cpu.max": "50000 100000\n"})
    assert machine.cpu_quota(tmp_path) == 0.5
    finding = machine.cores(tmp_path)
    assert finding.state == "limited"
    assert "0.5" in finding.found


@pytest.mark.parametrize(("quota", "expected"), [("200000", 2.0), ("-1", None)])
def test_the_quota_of_version_1_in_a_container_that_shows_the_path_of_its_host(
    tmp_path: Path, quota: str, expected: float | None
) -> None:
    write(
        tmp_path,
        {
            "proc/self/cgroup": "4:cpu,cpuacct:/docker/0123\n",
            "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": f"{quota}\n",
            "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000\n",
        },
    )
    assert machine.cpu_quota(tmp_path) == expected


def test_a_path_that_leads_out_of_the_container_is_not_followed(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "proc/self/cgroup": "0::/../other\n",
            "sys/fs/cgroup/cgroup.controllers": "cpu\n",
            "sys/fs/cpu.max": "100 100000\n",
            "sys/fs/other/cpu.max": "100 100000\n",
        },
    )
    assert machine.cpu_quota(tmp_path) is None


# energy


@pytest.fixture
def powercap() -> Iterator[Path]:
    """A machine's root with two counters, in a place that ordinary users can reach, as pytest's own are not."""
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        root.chmod(0o755)
        zones = root / "sys/class/powercap"
        write(
            zones,
            {
                "intel-rapl/enabled": "1\n",
                "intel-rapl:0/energy_uj": "262143328850\n",
                "intel-rapl:0/name": "package-0\n",
                "intel-rapl:0:0/energy_uj": "1234\n",
                "intel-rapl:0:0/name": "core\n",
            },
        )
        yield root


def test_counters_that_can_be_read(powercap: Path) -> None:
    finding = machine.energy(powercap)[0]
    assert finding.state == "ok"
    assert finding.values["readable"] == ["package-0", "core"]


@pytest.mark.skipif(not hasattr(os, "seteuid"), reason="needs users")
def test_counters_that_only_root_can_read(powercap: Path) -> None:
    for counter in powercap.glob("sys/class/powercap/*/energy_uj"):
        counter.chmod(0o400 if os.geteuid() == 0 else 0)
    with ordinary_user():
        finding = machine.energy(powercap)[0]
    assert finding.state == "limited"
    assert "estimated from CPU time" in finding.found
    assert "chmod a+r" in finding.remedy


def test_some_counters_that_can_be_read_need_no_estimate(powercap: Path) -> None:
    (powercap / "sys/class/powercap/intel-rapl:0:0/energy_uj").unlink()
    (powercap / "sys/class/powercap/intel-rapl:0:0/energy_uj").mkdir()  # even root can't read that
    finding = machine.energy(powercap)[0]
    assert finding.state == "limited"
    assert finding.values["readable"] == ["package-0"]
    assert "estimated" not in finding.found


def test_no_counters(tmp_path: Path) -> None:
    write(tmp_path, {"sys/class/powercap/intel-rapl/enabled": "1\n"})
    finding = machine.energy(tmp_path)[0]
    assert finding.state == "missing"
    assert "estimated from CPU time" in finding.found


class NVMLError(Exception):
    pass


def nvml(count: int, *, broken: bool = False) -> Any:
    def consumption(handle: int) -> int:
        if broken:
            raise NVMLError("Not Supported")
        return 5_000 + handle

    return types.SimpleNamespace(
        NVMLError=NVMLError,
        nvmlInit=lambda: None,
        nvmlShutdown=lambda: None,
        nvmlDeviceGetCount=lambda: count,
        nvmlDeviceGetHandleByIndex=lambda index: index,
        nvmlDeviceGetTotalEnergyConsumption=consumption,
    )


@pytest.mark.parametrize(
    ("module", "state", "says"),
    [
        (None, "missing", "not installed"),
        (nvml(2), "ok", "2 GPUs"),
        (nvml(0), "missing", "no GPU"),
        (nvml(1, broken=True), "missing", "Not Supported"),
    ],
)
def test_counters_of_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: Any, state: str, says: str) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", module)
    finding = machine.energy(tmp_path)[1]
    assert finding.state == state
    assert says in finding.found


# network


def test_interfaces_that_are_up_with_their_speed() -> None:
    addresses = {
        "lo": [Address(socket.AF_INET, "127.0.0.1")],
        "eth0": [Address(socket.AF_INET6, "fe80::1"), Address(socket.AF_INET, "10.0.0.2")],
        "wlan0": [Address(socket.AF_INET, "192.168.1.2"), Address(socket.AF_INET, "192.168.1.3")],
        "down0": [Address(socket.AF_INET, "10.9.9.9")],
        "six0": [Address(socket.AF_INET6, "fe80::2")],
    }
    stats = {name: Stats(name != "down0", {"eth0": 2500}.get(name, 0)) for name in addresses}
    findings = machine.network(addresses, stats, "192.168.1.3")
    assert [finding.name for finding in findings] == ["interface eth0", "interface wlan0", "to others"]
    assert findings[0].found == "10.0.0.2; 2,500 Mbit/s"
    assert findings[1].found == "192.168.1.2, 192.168.1.3; speed unknown"
    assert findings[2].values == {"interface": "wlan0", "address": "192.168.1.3"}


@pytest.mark.parametrize("speed", [0, -1, 65535])
def test_a_speed_that_the_driver_does_not_know_is_not_invented(speed: int) -> None:
    finding = machine.network({"e": [Address(socket.AF_INET, "10.0.0.2")]}, {"e": Stats(True, speed)}, None)[0]
    assert finding.values["megabits_per_second"] is None
    assert "speed unknown" in finding.found


def test_without_a_default_route() -> None:
    some = machine.network({"e": [Address(socket.AF_INET, "10.0.0.2")]}, {"e": Stats(True, 0)}, None)[-1]
    assert (some.name, some.state) == ("to others", "limited")
    none = machine.network({"lo": [Address(socket.AF_INET, "127.0.0.1")]}, {"lo": Stats(True, 0)}, None)
    assert [(finding.name, finding.state) for finding in none] == [("to others", "missing")]


def test_loopback_is_tried_and_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert machine.loopback().state == "ok"

    def refuse(*_: Any, **__: Any) -> Any:
        raise OSError(101, "Network is unreachable")

    monkeypatch.setattr(socket, "create_connection", refuse)  # binding still works, as where loopback is down
    finding = machine.loopback()
    assert (finding.state, finding.needed) == ("missing", True)
    assert "Network is unreachable" in finding.found


def test_the_outward_address_is_one_of_ours() -> None:
    address = machine.outward_address()
    ours = {entry.address for entries in psutil.net_if_addrs().values() for entry in entries}
    assert address is None or address in ours


# devices


def test_gpus_are_listed_with_their_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    gpu = types.SimpleNamespace(name="RTX 4090", total_memory=25_400_000_000)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: gpu)
    found = {finding.name: finding.found for finding in machine.devices()}
    assert found["GPU 0"] == found["GPU 1"] == "RTX 4090, 25.4 GB"
    assert "GPU" not in found


def test_why_a_gpu_can_not_be_used_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def unavailable() -> bool:
        warnings.warn("CUDA initialization: the driver is too old\n(and so on)", stacklevel=1)
        return False

    monkeypatch.setattr(torch.cuda, "is_available", unavailable)
    monkeypatch.setattr(torch.version, "cuda", "12.8")
    finding = machine.devices()[-1]
    assert finding.state == "missing"
    assert finding.found.endswith("the driver is too old")


def test_without_torch_nothing_needed_is_ok(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    examination = machine.examine(minga_version="1", threads_per_rank=None)
    states = {finding.name: finding.state for finding in examination.findings}
    assert (states["torch"], states["gloo"], states["threads per rank"]) == ("missing", "unknown", "unknown")
    assert not examination.local_run_works


# data and disk


@pytest.mark.parametrize("setting", [None, ""])
def test_no_data_directory(setting: str | None) -> None:
    (finding,) = machine.data_directory(setting)
    assert finding.state == "missing"
    assert "MINGA_DATA is not set" in finding.found


def test_a_data_directory_that_does_not_exist(tmp_path: Path) -> None:
    (finding,) = machine.data_directory(str(tmp_path / "nowhere"))
    assert finding.state == "missing"
    assert "nowhere" in finding.found


def test_data_sets_are_directories_with_something_in_them(tmp_path: Path) -> None:
    assert machine.data_directory(str(tmp_path))[1].state == "missing"
    write(tmp_path, {"mnist/train-images-idx3-ubyte": "", "text": "a file", "unrelated/x": ""})
    (tmp_path / "flickr8k").mkdir()
    directory, sets = machine.data_directory(str(tmp_path))
    assert (directory.state, sets.state) == ("ok", "limited")
    assert sets.values == {"found": ["mnist"], "lacking": ["fashion-mnist", "flickr8k", "text"]}
    (tmp_path / "text").unlink()
    write(tmp_path, {"fashion-mnist/x": "", "flickr8k/x": "", "text/x": ""})
    assert machine.data_directory(str(tmp_path))[1].state == "ok"


@pytest.mark.parametrize(("free", "state"), [(5_000_000_000, "ok"), (50_000_000, "limited")])
def test_little_free_space_is_said(monkeypatch: pytest.MonkeyPatch, free: int, state: str) -> None:
    usage = types.SimpleNamespace(total=10**10, free=free, available=free)
    monkeypatch.setattr("shutil.disk_usage", lambda path: usage)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: usage)
    assert machine.disk().state == state
    assert machine.memory().state == state


def test_a_directory_that_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(path: str) -> Any:
        raise FileNotFoundError(2, "No such file or directory")

    monkeypatch.setattr("shutil.disk_usage", gone)
    assert machine.disk().state == "unknown"


# everything


@pytest.mark.parametrize(("affinity", "state"), [({0, 3}, "ok"), ({3}, "limited")])
def test_cores_are_those_that_this_process_may_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, affinity: set[int], state: str
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: affinity, raising=False)
    finding = machine.cores(tmp_path)
    assert (finding.values["usable"], finding.state) == (len(affinity), state)


def test_a_machine_that_is_not_linux_and_has_no_proc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "system", lambda: "Darwin")
    monkeypatch.setattr(platform, "mac_ver", lambda: ("15.1", ("", "", ""), "arm64"))

    def nothing() -> Any:
        raise OSError("no os-release")

    monkeypatch.setattr(platform, "freedesktop_os_release", nothing)
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    assert "macOS 15.1" in machine.versions("1")[-1].found
    assert machine.cores(tmp_path).values["usable"] == os.cpu_count()
    lab = [machine.namespaces(tmp_path), *machine.traffic_shaping(tmp_path), machine.control_groups(tmp_path)]
    assert {finding.state for finding in lab} == {"missing"}
    assert machine.energy(tmp_path)[0].state == "missing"


def test_linux_without_proc_is_unknown(tmp_path: Path) -> None:
    lab = [machine.namespaces(tmp_path, "Linux"), *machine.traffic_shaping(tmp_path, "Linux")]
    assert {finding.state for finding in lab} == {"unknown"}


@pytest.mark.parametrize(("name", "works"), [("memory", True), ("network", True), ("devices", False)])
def test_a_look_that_fails_is_a_finding(monkeypatch: pytest.MonkeyPatch, name: str, works: bool) -> None:
    def fail(*_: Any) -> Any:
        raise PermissionError(13, "Permission denied", "/proc/somewhere")

    monkeypatch.setattr(machine, name, fail)
    examination = machine.examine(minga_version="1", threads_per_rank=1)
    (failed,) = [finding for finding in examination.findings if "/proc/somewhere" in finding.found]
    assert failed.state == "unknown"
    assert examination.local_run_works is works


def test_only_what_is_needed_decides_about_a_local_run() -> None:
    def finding(state: machine.State, needed: bool) -> Finding:
        remedy = "" if state == "ok" else "do something"
        return Finding(topic="t", name="n", state=state, found="f", remedy=remedy, needed=needed)

    assert Examination(findings=(finding("ok", True), finding("missing", False))).local_run_works
    assert not Examination(findings=(finding("ok", True), finding("unknown", True))).local_run_works


def test_whatever_is_not_ok_has_a_remedy() -> None:
    with pytest.raises(AssertionError, match="remedy"):
        Finding(topic="t", name="n", state="missing", found="f")
    with pytest.raises(AssertionError, match="remedy"):
        Finding(topic="t", name="n", state="ok", found="f", remedy="do something")
