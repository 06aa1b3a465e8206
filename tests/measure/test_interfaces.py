"""Counters of network interfaces: a file in place of the kernel's, and two real hosts joined by a cable."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from minga.measure.interfaces import InterfaceCounts, read_interfaces, wait_until_sent

DEVICES = """\
Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo: 999999 999  0 0 0 0 0 0  999999 999  0 0 0 0 0 0
  eth0:   5000  10  0 0 0 0 0 0   10660  10  0 0 0 0 0 0
  eth1:1000 1 0 0 0 0 0 0 66 1 0 0 0 0 0 0
"""  # noqa: E501


def test_all_interfaces_but_loopback_are_added(tmp_path: Path) -> None:
    path = tmp_path / "dev"
    path.write_text(DEVICES)
    counts = read_interfaces(path)
    assert counts == InterfaceCounts(bytes_received=6000, packets_received=11, bytes_sent=10726, packets_sent=11)
    assert counts.payload_sent == 10_000
    assert counts.to_dict()["payload_sent"] == 10_000


def test_counters_are_subtracted_one_by_one() -> None:
    before = InterfaceCounts(bytes_sent=1, bytes_received=2, packets_sent=3, packets_received=4)
    after = InterfaceCounts(bytes_sent=11, bytes_received=22, packets_sent=33, packets_received=44)
    assert after - before == InterfaceCounts(bytes_sent=10, bytes_received=20, packets_sent=30, packets_received=40)
    assert (after - before) + before == after


def test_a_system_without_such_a_file_has_no_counters(tmp_path: Path) -> None:
    assert read_interfaces(tmp_path / "missing") is None


def connections(unsent: int) -> str:
    line = (
        f"   0: 0100007F:1F90 0100007F:A2C4 01 {unsent:08X}:00000000 00:00000000 00000000  0  0 1 1 0 20 4 30 10 -1\n"
    )
    return "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n" + line


def test_waiting_ends_when_everything_is_sent_and_in_any_case(tmp_path: Path) -> None:
    path = tmp_path / "tcp"
    path.write_text(connections(0))
    began = time.monotonic()
    wait_until_sent(path, patience_seconds=60)
    assert time.monotonic() - began < 5
    path.write_text(connections(1500))
    began = time.monotonic()
    wait_until_sent(path, patience_seconds=0.1)
    assert 0.1 <= time.monotonic() - began < 5


TWO_HOSTS = """
import ctypes, os, socket, sys
from pyroute2 import IPRoute
from minga.measure.interfaces import InterfaceMeter, read_interfaces

library = ctypes.CDLL(None, use_errno=True)

def new_network():
    if library.unshare(0x40000000):
        print("no right to make network namespaces")
        os._exit(3)
    for setting in ("all", "default"):
        path = f"/proc/sys/net/ipv6/conf/{setting}/disable_ipv6"
        if os.path.exists(path):
            open(path, "w").write("1")

def plug_in(address):
    with IPRoute() as kernel:
        index = kernel.link_lookup(ifname="eth0")[0]
        kernel.link("set", index=index, state="up")
        kernel.addr("add", index=index, address=address, prefixlen=24)

to_child, to_parent = socket.socketpair()
new_network()
if (child := os.fork()) == 0:
    new_network()
    to_parent.send(b"x")
    to_parent.recv(1)
    plug_in("10.0.0.2")
    listener = socket.create_server(("10.0.0.2", 5000))
    to_parent.send(b"x")
    connection, _ = listener.accept()
    while connection.recv(1 << 20):
        pass
    os._exit(0)
to_child.recv(1)
with IPRoute() as kernel:
    kernel.link("add", ifname="eth0", kind="veth", peer={"ifname": "eth0", "net_ns_pid": child})
plug_in("10.0.0.1")
with IPRoute() as kernel:  # slow enough for most of it to wait in the kernel when sendall() is done
    kernel.tc("add", "tbf", index=kernel.link_lookup(ifname="eth0")[0], rate=1_250_000, burst=20000, latency="100ms")
to_child.send(b"x")
to_child.recv(1)
connection = socket.create_connection(("10.0.0.2", 5000))
meter = InterfaceMeter()
meter.resume()
for size in (1, 1448, 1449, 300_000):
    connection.sendall(bytes(size))
meter.pause()
connection.sendall(bytes(100_000))  # not counted
meter.resume()
connection.sendall(bytes(50_000))
at_once = read_interfaces()
meter.pause()
connection.close()
os.waitpid(child, 0)
print(meter.counts.payload_sent, read_interfaces().bytes_sent - at_once.bytes_sent)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="needs network namespaces")
def test_on_a_host_of_its_own_the_payload_is_what_was_sent_to_the_byte() -> None:
    pytest.importorskip("pyroute2")
    done = subprocess.run([sys.executable, "-c", TWO_HOSTS], capture_output=True, text=True, timeout=60)
    if done.returncode == 3:
        pytest.skip(done.stdout)
    assert done.returncode == 0, done.stderr
    payload, later = map(int, done.stdout.split())
    assert payload == 1 + 1448 + 1449 + 300_000 + 50_000
    assert later > 10_000  # so waiting was needed
