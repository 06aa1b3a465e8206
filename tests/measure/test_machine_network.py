"""What the doctor sees of networks: interfaces as psutil tells them, and loopback by trying it."""

from __future__ import annotations

import socket
from collections import namedtuple
from typing import Any

import psutil
import pytest

from minga.measure.machine.network import loopback, network, outward_address

Address = namedtuple("Address", "family address")
Stats = namedtuple("Stats", "isup speed")


def test_interfaces_that_are_up_with_their_speed() -> None:
    addresses = {
        "lo": [Address(socket.AF_INET, "127.0.0.1")],
        "eth0": [Address(socket.AF_INET6, "fe80::1"), Address(socket.AF_INET, "10.0.0.2")],
        "wlan0": [Address(socket.AF_INET, "192.168.1.2"), Address(socket.AF_INET, "192.168.1.3")],
        "down0": [Address(socket.AF_INET, "10.9.9.9")],
        "six0": [Address(socket.AF_INET6, "fe80::2")],
    }
    stats = {name: Stats(name != "down0", {"eth0": 2500}.get(name, 0)) for name in addresses}
    findings = network(addresses, stats, "192.168.1.3")
    assert [finding.name for finding in findings] == ["interface eth0", "interface wlan0", "to others"]
    assert findings[0].found == "10.0.0.2; 2,500 Mbit/s"
    assert findings[1].found == "192.168.1.2, 192.168.1.3; speed unknown"
    assert findings[2].values == {"interface": "wlan0", "address": "192.168.1.3"}


@pytest.mark.parametrize("speed", [0, -1, 65535])
def test_a_speed_that_the_driver_does_not_know_is_not_invented(speed: int) -> None:
    finding = network({"e": [Address(socket.AF_INET, "10.0.0.2")]}, {"e": Stats(True, speed)}, None)[0]
    assert finding.values["megabits_per_second"] is None
    assert "speed unknown" in finding.found


def test_without_a_default_route() -> None:
    some = network({"e": [Address(socket.AF_INET, "10.0.0.2")]}, {"e": Stats(True, 0)}, None)[-1]
    assert (some.name, some.state) == ("to others", "limited")
    none = network({"lo": [Address(socket.AF_INET, "127.0.0.1")]}, {"lo": Stats(True, 0)}, None)
    assert [(finding.name, finding.state) for finding in none] == [("to others", "missing")]


def test_loopback_is_tried_and_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert loopback().state == "ok"

    def refuse(*_: Any, **__: Any) -> Any:
        raise OSError(101, "Network is unreachable")

    monkeypatch.setattr(socket, "create_connection", refuse)  # binding still works, as where loopback is down
    finding = loopback()
    assert (finding.state, finding.needed) == ("missing", True)
    assert "Network is unreachable" in finding.found


def test_the_outward_address_is_one_of_ours() -> None:
    address = outward_address()
    ours = {entry.address for entries in psutil.net_if_addrs().values() for entry in entries}
    assert address is None or address in ours
