"""Which interface leads where; what people are told when the wrong one was used."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from minga.errors import ConfigError
from minga.net.generation import MemberInfo, new_incarnation
from minga.net.interfaces import (
    Interface,
    address_of,
    explain,
    interface_towards,
    interfaces,
    unreachable,
    unusable,
)


def member(id: str, **fields: Any) -> MemberInfo:
    return MemberInfo(id=id, incarnation=new_incarnation(), **{"address": "127.0.0.1", "port": 1, **fields})


@contextlib.contextmanager
def port_for_data() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield int(listening.getsockname()[1])


def test_loopback_is_found_by_name_and_by_way() -> None:
    assert Interface("lo", "127.0.0.1") in interfaces()
    assert address_of("lo") == "127.0.0.1"
    assert interface_towards("127.0.0.1") == Interface("lo", "127.0.0.1")


def test_an_unknown_interface_lists_those_there_are() -> None:
    with pytest.raises(ConfigError, match=r"unknown interface 'l0'; known: .*lo.*Up and with an address: .*127.0.0.1"):
        address_of("l0")


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ConnectionRefusedError(errno.ECONNREFUSED, "refused"), "nobody listens there"),
        (TimeoutError(), "no answer. A firewall on the way"),
        (OSError(errno.EHOSTUNREACH, "no route"), "no answer. A firewall on the way"),
        (socket.gaierror(-2, "Name or service not known"), "give an IP address"),
        (OSError(errno.EPIPE, "strange"), "strange"),
    ],
)
def test_failures_are_explained_with_the_interface(error: Exception, words: str) -> None:
    told = explain("127.0.0.1", 4000, error)
    assert told.startswith("can't connect to 127.0.0.1:4000")
    assert words in told


def test_a_source_that_leads_nowhere_is_explained() -> None:
    told = explain("10.9.9.9", 4000, OSError(errno.EINVAL, "Invalid argument"), source="127.0.0.1")
    assert "by lo (127.0.0.1): packets to that address can't leave from 127.0.0.1" in told


def test_addresses_that_nobody_else_can_use() -> None:
    assert "loopback of each machine" in unusable("127.0.0.1", "10.0.0.7")
    assert "comes from 10.0.0.7" in unusable("127.0.0.1", "10.0.0.7")
    assert "stands for all addresses" in unusable("0.0.0.0", "10.0.0.7")
    assert unusable("127.0.0.1", "127.0.0.1") == ""
    assert unusable("node.example.org", "10.0.0.7") == ""


def test_reachable_is_what_can_be_connected_to() -> None:
    with port_for_data() as port:
        assert asyncio.run(unreachable(member("a", port=port), "127.0.0.1")) == ""
    told = asyncio.run(unreachable(member("a", port=port), "127.0.0.1"))
    assert f"can't reach a's port for data, 127.0.0.1:{port} (Connection refused)" in told
    assert "Look whether it listens there" in told
    told = asyncio.run(unreachable(member("a", port=port), "127.0.0.9"))
    assert "comes from 127.0.0.9: announce that address" in told
    assert "loopback of each machine" in asyncio.run(unreachable(member("a", port=port), "10.0.0.1"))
