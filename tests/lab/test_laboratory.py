"""Real labs: what links do, that labs don't collide, and that nothing is left of them."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from minga.errors import ConfigError, LabError
from minga.lab import Lab, Measured, registry
from minga.lab.cables import tbf_rate
from minga.lab.cpu_shares import groups_named
from minga.runs.network import Link, LinkOverride, Network

pytestmark = pytest.mark.usefixtures("no_lab_left")


def eventually(right: Callable[[Measured], bool], lab: Lab) -> Measured:
    """Measure up to three times: other tests run beside this one, and can only spoil a measurement."""
    for _ in range(2):
        measured = lab.measure()
        if right(measured):
            return measured
    return lab.measure()


@pytest.mark.parametrize("rate", [10e6, 100e6, 1e9])
def test_a_link_carries_what_was_asked_for(rate: float) -> None:
    with Lab(Network(bandwidth=rate), 2) as lab:
        measured = eventually(lambda found: not found.off, lab)
    assert measured.off == []
    for link in measured.links:
        for way in ("up", "down"):
            assert link[f"{way}_measured"] == pytest.approx(rate, rel=0.05)
    assert measured.bandwidth_measured == pytest.approx(rate, rel=0.05)


def test_a_delay_is_kept_with_or_without_the_kernels_help() -> None:
    with Lab(Network(bandwidth=10e6, delay=0.02), 2) as lab:
        measured = eventually(lambda found: not found.off, lab)
    assert measured.emulation in ("netem", "relay")
    assert measured.delay_measured == pytest.approx(0.02, abs=0.002)
    assert measured.bandwidth_measured == pytest.approx(10e6, rel=0.05)


def test_from_host_to_host_takes_the_delay_each_way() -> None:
    with Lab(Network(delay=0.02, hosts={"h2": LinkOverride(delay=0.05)}), 2) as lab:
        echo = (
            "import socket\n"
            "server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
            "server.bind(('0.0.0.0', 7007)); print('ready', flush=True)\n"
            "for _ in range(6): content, sender = server.recvfrom(100); server.sendto(content, sender)"
        )
        ask = (
            "import socket, time\n"
            "client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); client.settimeout(5)\n"
            "for _ in range(6):\n"
            f"    began = time.perf_counter(); client.sendto(b'x', ({lab.hosts['h2']['address']!r}, 7007))\n"
            "    client.recv(100); print(time.perf_counter() - began)"
        )
        with subprocess.Popen(
            [sys.executable, "-c", echo], preexec_fn=lab.entering("h2"), stdout=subprocess.PIPE
        ) as server:
            assert server.stdout is not None
            server.stdout.readline()
            trips = subprocess.run(
                [sys.executable, "-c", ask], preexec_fn=lab.entering("h1"), capture_output=True, text=True, check=True
            ).stdout.split()
    assert sorted(map(float, trips))[2] == pytest.approx(0.07, abs=0.005)


def test_loss_is_what_was_asked_for_and_slows_tcp_down() -> None:
    with Lab(Network(bandwidth=100e6, delay=0.005, loss=0.05), 1) as lab:
        (link,) = lab.measure().links
    assert link["loss_measured"] == pytest.approx(0.05, abs=0.03)
    assert link["up_measured"] < 50e6
    assert link["down_measured"] > 80e6


def test_each_direction_and_each_host_has_its_own_rate_and_they_change_while_in_use() -> None:
    with Lab(Network(bandwidth=20e6, up=5e6, hosts={"h2": LinkOverride(bandwidth=10e6)}), 2) as lab:
        first, second = lab.measure().links
        assert first["up_measured"] == pytest.approx(5e6, rel=0.05)
        assert first["down_measured"] == pytest.approx(20e6, rel=0.05)
        assert second["up_measured"] == pytest.approx(10e6, rel=0.05)
        lab.change("h1", Link(bandwidth=8e6))
        lab.change("h2", Link())
        first, second = lab.measure().links
        assert first["up_measured"] == pytest.approx(8e6, rel=0.05)
        assert second["up_measured"] > 100e6


def test_two_sites_share_one_thin_link() -> None:
    network = Network(bandwidth=100e6, sites=(1, 1), between=Link(bandwidth=10e6, up=5e6, delay=0.01))
    with Lab(network, 2) as lab:
        first, second, between = lab.measure().links
        assert (lab.hosts["h1"]["site"], lab.hosts["h2"]["site"]) == ("site1", "site2")
    assert first["up_measured"] == pytest.approx(100e6, rel=0.05)
    assert second["down_measured"] == pytest.approx(100e6, rel=0.05)
    assert between["up_measured"] == pytest.approx(5e6, rel=0.05)
    assert between["down_measured"] == pytest.approx(10e6, rel=0.05)
    assert between["delay_measured"] == pytest.approx(0.01, abs=0.002)


def test_two_labs_at_once_do_not_see_each_other() -> None:
    with Lab(Network(bandwidth=10e6), 2) as one, Lab(Network(bandwidth=50e6), 2) as other:
        assert one.hosts["h1"]["address"] == other.hosts["h1"]["address"]
        assert one.measure().bandwidth_measured == pytest.approx(10e6, rel=0.05)
        assert other.measure().bandwidth_measured == pytest.approx(50e6, rel=0.05)
    assert "minga" not in Path("/proc/net/dev").read_text()


def test_hosts_are_not_on_this_machines_network() -> None:
    with Lab(Network(), 1) as lab:
        (place,) = lab.hosts["h1"]["namespaces"][-1:]
        assert os.readlink(place) != os.readlink("/proc/self/ns/net")  # noqa: PTH115  (these links lead nowhere)
        inside = subprocess.run(
            ["cat", "/proc/net/dev"], preexec_fn=lab.entering("h1"), capture_output=True, text=True, check=True
        )
    names = [line.split(":")[0].strip() for line in inside.stdout.splitlines() if ":" in line]
    assert sorted(names) == ["eth0", "lo"]


def test_mistakes_are_told() -> None:
    with pytest.raises(ConfigError, match="h7"):
        Lab(Network(hosts={"h7": LinkOverride()}), 2)
    with Lab(Network(), 2) as lab:
        with pytest.raises(ConfigError, match="there is no host 'h7'; there are h1, h2"):
            lab.change("h7", Link())
        with pytest.raises(ConfigError, match="without a delay"):
            lab.change("h1", Link(delay=0.1))
        with pytest.raises(ConfigError, match="h7"):
            lab.entering("h7")


def processes_of(name: str) -> list[int]:
    return [each.pid for each in psutil.process_iter(["cmdline"]) if name in (each.info["cmdline"] or [])]


def gone(name: str, seconds: float = 10) -> bool:
    """Whether no process, control group or file of a lab is left, or will be in a moment."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        files = list(registry.directory().glob(f"{name}*"))
        if not processes_of(name) and not groups_named(name) and not files:
            return True
        time.sleep(0.05)
    return False


def test_nothing_is_left_after_success_and_after_an_error() -> None:
    with Lab(Network(delay=0.001), 2, cpu=(0.5,)) as lab:
        assert processes_of(lab.name)
        assert groups_named(lab.name)
    assert gone(lab.name, 1)
    with pytest.raises(ZeroDivisionError), Lab(Network(), 2, cpu=(0.5,)) as lab:
        1 / 0  # noqa: B018
    assert gone(lab.name, 1)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_nothing_is_left_when_the_owner_is_ended(how: signal.Signals) -> None:
    code = (
        "import subprocess, sys, time\n"
        "from minga.lab import Lab\n"
        "from minga.runs.network import Network\n"
        "with Lab(Network(bandwidth=10e6, delay=0.001), 2, cpu=(0.5,)) as lab:\n"
        "    print(lab.name, flush=True)\n"
        "    time.sleep(60)"
    )
    owner = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert owner.stdout is not None
    name = owner.stdout.readline().strip()
    assert len(processes_of(name)) >= 5  # daemon, switch, two hosts, relay or not
    owner.send_signal(how)
    owner.wait(10)
    owner.stdout.close()
    assert gone(name)


def test_a_child_of_the_owner_does_not_keep_the_lab_alive() -> None:
    code = (
        "import os, time\n"
        "from minga.lab import Lab\n"
        "from minga.runs.network import Network\n"
        "with Lab(Network(), 1) as lab:\n"
        "    child = os.fork()\n"
        "    if child: print(lab.name, child, flush=True)\n"
        "    time.sleep(60)"
    )
    owner = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    name, child = owner.stdout.readline().split()
    try:
        owner.kill()
        owner.wait(10)
        assert gone(name)
    finally:
        os.kill(int(child), signal.SIGKILL)
        owner.stdout.close()


def test_ctrl_c_does_not_wait_for_a_measurement() -> None:
    code = (
        "from minga.lab import Lab\n"
        "from minga.runs.network import Network\n"
        "with Lab(Network(delay=0.5), 1) as lab:\n"
        "    print(lab.name, flush=True)\n"
        "    lab.measure()"
    )
    command = [sys.executable, "-c", code]
    owner = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert owner.stdout is not None
    name = owner.stdout.readline().strip()
    time.sleep(0.5)
    began = time.monotonic()
    owner.send_signal(signal.SIGINT)
    owner.wait(30)
    owner.stdout.close()
    assert time.monotonic() - began < 5  # the measurement takes 18 s
    assert gone(name)


@pytest.mark.slow
def test_the_slowest_and_the_fastest_link_that_is_allowed() -> None:
    with Lab(Network(bandwidth=64e3, loss=0.01), 1) as lab:
        assert lab.measure().bandwidth_measured == pytest.approx(64e3, rel=0.3)
    with Lab(Network(bandwidth=30e9), 1) as lab:
        assert (lab.measure().bandwidth_measured or 0) > 1e9


def test_a_link_that_becomes_lossy_loses_packets_and_no_large_pieces() -> None:
    with Lab(Network(bandwidth=100e6, delay=0.005), 1) as lab:
        before = lab.measure().links[0]
        lab.change("h1", Link(bandwidth=100e6, delay=0.005, loss=0.05))
        lossy = lab.measure().links[0]
        lab.change("h1", Link(bandwidth=100e6, delay=0.005))
        after = lab.measure().links[0]
    assert before["up_measured"] > 80e6
    assert lossy["up_measured"] < 50e6
    assert after["up_measured"] > 80e6


def test_an_ordinary_user_finds_its_labs() -> None:
    tool = shutil.which("setpriv")
    if tool is None or os.getuid() != 0:
        pytest.skip("needs root, and setpriv to give rights away")
    code = (
        "from minga.lab import Lab, registry\n"
        "from minga.lab.limits import check_rights\n"
        "from minga.runs.network import Network\n"
        "assert check_rights()\n"
        "with Lab(Network(bandwidth=10e6), 1) as lab:\n"
        "    print(lab.name in [record.name for record in registry.records() if record.alive])\n"
    )
    rights = ["--bounding-set=-sys_admin,-net_admin", "--inh-caps=-sys_admin,-net_admin"]
    done = subprocess.run([tool, *rights, sys.executable, "-c", code], capture_output=True, text=True, check=False)
    if "AssertionError" in done.stderr or "no network namespaces" in done.stderr:
        pytest.skip("this system does not let ordinary users make user namespaces")
    assert done.stdout.strip() == "True", done.stderr


def test_a_killed_keeper_is_told_and_its_traces_are_removed() -> None:
    with pytest.raises(LabError, match="is gone"), Lab(Network(), 2, cpu=(0.5,)) as lab:
        (record,) = [each for each in registry.records() if each.name == lab.name]
        os.kill(record.daemon, signal.SIGKILL)
        lab.measure()
    assert gone(lab.name)


def test_leftovers_of_a_lab_whose_every_process_was_killed_are_found_and_removed() -> None:
    code = (
        "import os, time\n"
        "from minga.lab import Lab, registry\n"
        "from minga.runs.network import Network\n"
        "with Lab(Network(), 1, cpu=(0.5,)) as lab:\n"
        "    record = next(each for each in registry.records() if each.name == lab.name)\n"
        "    print(lab.name, record.daemon, flush=True)\n"
        "    time.sleep(60)"
    )
    owner = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    name, daemon = owner.stdout.readline().split()
    assert name not in registry.leftovers()  # it is in use
    os.kill(owner.pid, signal.SIGSTOP)  # so that it can't clean up behind the daemon
    os.kill(int(daemon), signal.SIGKILL)
    os.kill(owner.pid, signal.SIGKILL)
    owner.wait(10)
    owner.stdout.close()
    # Its processes end by themselves, which may take a while on a busy machine; then it is there to be cleaned up,
    # unless another test's new lab has done so already.
    deadline = time.monotonic() + 20
    while not (found := name in registry.leftovers() or gone(name, 0.1)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert found
    registry.clean(name)
    assert gone(name, 1)


def test_rates_leave_room_for_headers() -> None:
    rate, burst, queue = tbf_rate(10e6)
    assert rate == int(10e6 / 8 * 1514 / 1448)
    assert 4 * 1514 <= burst < 5 * 1514  # a millisecond's worth would be less than that
    assert queue == int(rate * 0.1)
    assert tbf_rate(1e9)[1] == int(1e9 / 8 * 1514 / 1448 * 0.001)


def test_the_directory_of_labs_must_be_ours_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert registry.directory().stat().st_mode & 0o777 == 0o700
    (tmp_path / "minga").chmod(0o755)
    with pytest.raises(LabError, match="only you"):
        registry.directory()
