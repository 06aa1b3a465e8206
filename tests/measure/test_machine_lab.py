"""What the doctor sees of namespaces, shaping and control groups: sample texts, directories in place of /proc."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from minga.measure.kernel import cpu_quota, throttled_seconds
from minga.measure.machine.lab import (
    control_groups,
    discipline,
    has_capability,
    namespaces,
    netlink_library,
    relay,
    traffic_shaping,
)
from minga.measure.machine.system import cores

SYS_ADMIN, NET_ADMIN = 21, 12
ALL_RIGHTS = "Name:\tpython\nCapPrm:\t0000000000000000\nCapEff:\t000001ffffffffff\nSeccomp:\t0\n"
NO_RIGHTS = "Name:\tpython\nCapPrm:\t000001ffffffffff\nCapEff:\t0000000000000000\nSeccomp:\t0\n"
DOCKER_ROOT = "Name:\tpython\nCapEff:\t00000000a80425fb\nSeccomp:\t2\n"
LOADED = "sch_tbf 16384 1 - Live 0x0000000000000000\nveth 45056 0 - Live 0x0000000000000000\n"
BUILT_IN = "kernel/net/sched/sch_htb.ko\nkernel/fs/ext4/ext4.ko\n"
INSTALLED = "kernel/net/sched/sch_netem.ko.zst: kernel/net/sched/sch_generic.ko.zst\nkernel/drivers/net/veth.ko.zst:\n"
CONFIGURATION = "CONFIG_NET_SCH_HTB=y\nCONFIG_NET_SCH_TBF=m\n# CONFIG_NET_SCH_NETEM is not set\n"


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


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
    assert has_capability(status, number) is expected


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
    finding = namespaces(tmp_path, system="Linux")
    assert finding.state == state
    assert says in finding.remedy


def test_rights_do_not_help_where_the_kernel_has_no_namespaces(tmp_path: Path) -> None:
    write(tmp_path, {"proc/self/status": ALL_RIGHTS})
    assert namespaces(tmp_path, system="Linux").state == "missing"


def test_namespaces_name_the_right_that_is_lacking(tmp_path: Path) -> None:
    write(tmp_path, {"proc/self/ns/net": "", "proc/self/ns/user": "", "proc/self/status": "CapEff:\t0000000000200000"})
    finding = namespaces(tmp_path, system="Linux")
    assert finding.state == "limited"
    assert finding.found.startswith("no CAP_NET_ADMIN:")


@pytest.mark.skipif(not Path("/proc/self/ns/net").exists(), reason="needs Linux with /proc")
def test_looking_at_namespaces_makes_none() -> None:
    ours = Path("/proc/self/ns/net")
    before = ours.stat().st_ino
    namespaces()
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
    assert discipline(name, **sources).state == state


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
    states = {f.name: f.state for f in traffic_shaping(tmp_path, system="Linux", release="6.1.0")}
    assert states == {"shaping: tbf": "ok", "shaping: htb": "ok", "shaping: netem": "missing"}


@pytest.mark.parametrize("place", ["proc/config.gz", "boot/config-6.1.0"])
def test_traffic_shaping_reads_the_configuration(tmp_path: Path, place: str) -> None:
    content = CONFIGURATION.encode()
    (tmp_path / place).parent.mkdir(parents=True)
    (tmp_path / place).write_bytes(gzip.compress(content) if place.endswith(".gz") else content)
    findings = traffic_shaping(tmp_path, system="Linux", release="6.1.0")
    assert [finding.state for finding in findings] == ["unknown", "ok", "missing"]
    assert "tc qdisc add" in findings[0].remedy
    assert "CONFIG_NET_SCH_NETEM" in findings[2].remedy


def test_a_damaged_configuration_is_no_configuration(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/config.gz").write_bytes(gzip.compress(CONFIGURATION.encode())[:30])
    assert {f.state for f in traffic_shaping(tmp_path, system="Linux", release="6.1.0")} == {"unknown"}


def test_linux_without_proc_is_unknown(tmp_path: Path) -> None:
    lab = [namespaces(tmp_path, "Linux"), *traffic_shaping(tmp_path, "Linux")]
    assert {finding.state for finding in lab} == {"unknown"}


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
    finding = control_groups(tmp_path, system="Linux")
    assert (finding.state, finding.values["version"]) == ("ok", 2)
    write(tmp_path, {"sys/fs/cgroup/user.slice/mine.scope/cgroup.controllers": "memory\n"})
    assert control_groups(tmp_path, system="Linux").state == "limited"
    write(tmp_path, {"sys/fs/cgroup/cgroup.controllers": "cpuset memory\n"})
    assert control_groups(tmp_path, system="Linux").state == "missing"


@pytest.mark.parametrize("mounted", ["cpu", "cpu,cpuacct"])
def test_control_groups_of_version_1(tmp_path: Path, mounted: str) -> None:
    write(tmp_path, {"proc/self/cgroup": f"5:memory:/far/away\n1:{mounted}:/\n0::/\n"})
    assert control_groups(tmp_path, system="Linux").state == "missing"
    (tmp_path / "sys/fs/cgroup" / mounted).mkdir(parents=True)
    finding = control_groups(tmp_path, system="Linux")
    assert (finding.state, finding.values["version"]) == ("ok", 1)


def test_a_cpuset_controller_is_not_a_cpu_controller(tmp_path: Path) -> None:
    write(tmp_path, {"proc/self/cgroup": "1:cpuset:/\n"})
    (tmp_path / "sys/fs/cgroup/cpuset").mkdir(parents=True)
    assert control_groups(tmp_path, system="Linux").state == "missing"


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
    assert cpu_quota(tmp_path) == 1.5
    write(tmp_path, {"sys/fs/cgroup/pod/container/cpu.max": "50000 100000\n"})
    assert cpu_quota(tmp_path) == 0.5
    finding = cores(tmp_path)
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
    assert cpu_quota(tmp_path) == expected


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
    assert cpu_quota(tmp_path) is None


# delays in user space


def test_a_machine_without_tun_is_told_what_to_do(tmp_path: Path) -> None:
    assert relay(tmp_path, "Linux").state == "missing"
    assert relay(tmp_path, "Darwin").state == "missing"
    assert relay(write(tmp_path, {"dev/net/tun": ""}), "Linux").state == "ok"


def test_the_netlink_library_is_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    assert netlink_library().state == "ok"
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert netlink_library().state == "missing"


def test_throttling_is_read_from_either_version(tmp_path: Path) -> None:
    assert throttled_seconds(tmp_path) is None
    write(tmp_path, {"cpu.stat": "nr_periods 5\nnr_throttled 2\nthrottled_time 1500000000\n"})
    assert throttled_seconds(tmp_path) == pytest.approx(1.5)
    write(tmp_path, {"cpu.stat": "usage_usec 7\nthrottled_usec 250000\n"})
    assert throttled_seconds(tmp_path) == pytest.approx(0.25)
