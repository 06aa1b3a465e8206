"""Connections with certificates: both sides look, and a foreign certificate opens nothing."""

from __future__ import annotations

import contextlib
import datetime
import logging
import re
import shutil
import socket
import ssl
import time
import types
from pathlib import Path
from typing import Any

import pytest
from people import at, data_port, info, join_all, make_coordinator, members, until

from minga.errors import PeerTimeout
from minga.membership.coordinator import coordinating
from minga.membership.member import Member
from minga.membership.visitors import ask
from minga.net.certificates import make_certificates


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("certificates")
    make_certificates(directory / "ours", ["127.0.0.1", "127.0.0.2", "localhost"])
    make_certificates(directory / "foreign", ["127.0.0.1"])
    return directory


@pytest.fixture(scope="module")
def ours(certificates: Path) -> str:
    return str(certificates / "ours" / "127.0.0.1")


@pytest.fixture(scope="module")
def foreign(certificates: Path) -> str:
    return str(certificates / "foreign" / "127.0.0.1")


def test_members_join_with_certificates(tmp_path: Path, ours: str) -> None:
    with coordinating(make_coordinator(tmp_path, 2, tls=ours)) as where:
        with members(*where, ids=["a", "b"], tls=ours) as them:
            join_all(them)
            them[1].close()
            assert them[0].wait_for_generation(1, 5).number == 2
            begin = time.monotonic()
            them[0].leave(finished=True)
            assert time.monotonic() - begin < 2


def test_a_foreign_certificate_is_refused_by_both(
    tmp_path: Path, certificates: Path, ours: str, foreign: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    with coordinating(make_coordinator(tmp_path, 2, tls=ours)) as where:
        with members(*where, ids=["a", "b"], tls=ours) as them, data_port() as port:
            join_all(them)
            # The member does not trust the coordinator.
            member = Member(at(where, tls=foreign), info("c", port=port))
            with pytest.raises(PeerTimeout, match=r"CERTIFICATE_VERIFY_FAILED.*certificates of one authority"):
                member.join(0.5)
            member.close()
            # Somebody who trusts anybody, with a certificate of another authority, or none: the coordinator does not.
            for certificate in (True, False):
                caplog.clear()
                context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
                context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
                if certificate:
                    directory = certificates / "foreign" / "127.0.0.1"
                    context.load_cert_chain(directory / "node.pem", directory / "node.key")
                with socket.create_connection(where) as plain, contextlib.suppress(ssl.SSLError, ConnectionError):
                    with context.wrap_socket(plain) as wrapped:
                        wrapped.settimeout(3)
                        wrapped.sendall(b"\0\0\0\2{}")
                        assert wrapped.recv(100) == b""
                words = "CERTIFICATE_VERIFY_FAILED" if certificate else "PEER_DID_NOT_RETURN_A_CERTIFICATE"
                until(lambda words=words: re.search(f"refused .*no TLS connection: {words}", caplog.text))
            assert all(member.connected for member in them)
            assert them[0].generation is not None and them[0].generation.number == 1


def test_a_certificate_for_another_address_is_refused(tmp_path: Path, certificates: Path, ours: str) -> None:
    elsewhere = str(certificates / "ours" / "127.0.0.2")
    with coordinating(make_coordinator(tmp_path, 1, tls=elsewhere)) as where, data_port() as port:
        member = Member(at(where, tls=ours), info("a", port=port))
        with pytest.raises(PeerTimeout, match=r"CERTIFICATE_VERIFY_FAILED.*make one for the address"):
            member.join(0.5)
        member.close()


def test_a_certificate_that_has_expired_is_told_where_it_is_refused(
    tmp_path: Path, ours: str, certificates: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """In the visitor's error, or in the coordinator's log."""

    class Earlier(datetime.datetime):
        @classmethod
        def now(cls, tz: datetime.tzinfo | None = None) -> Any:
            return datetime.datetime.now(tz) - datetime.timedelta(days=100)

    then = types.SimpleNamespace(datetime=Earlier, timedelta=datetime.timedelta, UTC=datetime.UTC)
    with monkeypatch.context() as patched:
        shutil.copytree(certificates / "ours", tmp_path / "earlier")
        shutil.rmtree(tmp_path / "earlier" / "127.0.0.1")
        patched.setattr("minga.net.certificates.datetime", then)
        make_certificates(tmp_path / "earlier", ["127.0.0.1"], days=10)
    expired = str(tmp_path / "earlier" / "127.0.0.1")
    for number, (coordinators, visitors) in enumerate([(expired, ours), (ours, expired)]):
        (tmp_path / str(number)).mkdir()
        caplog.clear()
        with coordinating(make_coordinator(tmp_path / str(number), 1, tls=coordinators)) as where:
            coming = at(where, tls=visitors)
            # Who is refused may find the connection ended before it has heard why.
            told = r"(?i)expired.*make a new one with `minga cert`" if visitors is ours else None
            with pytest.raises(PeerTimeout, match=told):
                ask(coming, timeout_seconds=0)
            if coordinators is ours:
                until(lambda: re.search("refused .*certificate has expired", caplog.text))


def test_one_side_with_and_one_without(tmp_path: Path, ours: str, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "plain").mkdir()
    with coordinating(make_coordinator(tmp_path, 1, tls=ours)) as where, data_port() as port:
        member = Member(at(where), info("a", port=port))
        with pytest.raises(PeerTimeout):
            member.join(0.4)
        member.close()
        assert "no TLS connection" in caplog.text
    caplog.clear()
    with coordinating(make_coordinator(tmp_path / "plain", 1)) as where, data_port() as port:
        member = Member(at(where, tls=ours), info("a", port=port))
        with pytest.raises(PeerTimeout):
            member.join(0.4)
        member.close()
        assert "this looks like TLS: one side has certificates and the other has none" in caplog.text


def test_old_versions_of_tls_are_refused(tmp_path: Path, ours: str, caplog: pytest.LogCaptureFixture) -> None:
    with coordinating(make_coordinator(tmp_path, 1, tls=ours)) as where:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        with socket.create_connection(where) as plain, pytest.raises(ssl.SSLError):
            context.wrap_socket(plain)
        until(lambda: "no TLS connection: UNSUPPORTED_PROTOCOL" in caplog.text)


def test_who_never_finishes_the_handshake_is_dropped(
    tmp_path: Path, ours: str, caplog: pytest.LogCaptureFixture
) -> None:
    with coordinating(make_coordinator(tmp_path, 1, tls=ours, greeting_seconds=0.4)) as where:
        with socket.create_connection(where) as silent:
            silent.settimeout(3)
            with contextlib.suppress(ConnectionResetError):
                assert silent.recv(10) == b""
    assert "no greeting within 0.4 s" in caplog.text
