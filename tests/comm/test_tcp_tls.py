"""The same messages through TLS, where both sides show a certificate."""

from __future__ import annotations

import shutil
import ssl
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tcp_members import seconds_to_fail

from minga.comm.tcp import DataListener, TcpTransport
from minga.comm.transport import Transport
from minga.net.tls import Tls
from minga.testing import TransportConformance, generation_of, run_tcp_threads

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="certificates are made with openssl")


def make_tls(folder: Path) -> Tls:
    """A certificate that signs itself, trusted by those who have it."""
    command = (
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout key.pem -out certificate.pem"
    )
    command += " -days 2 -subj /CN=minga -addext subjectAltName=IP:127.0.0.1"
    subprocess.run(command.split(), cwd=folder, check=True, capture_output=True)
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(folder / "certificate.pem"))
    client = ssl.create_default_context(ssl.Purpose.SERVER_AUTH, cafile=str(folder / "certificate.pem"))
    for context in (server, client):
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_cert_chain(folder / "certificate.pem", folder / "key.pem")
    return Tls(server, client)


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> Tls:
    return make_tls(tmp_path_factory.mktemp("tls"))


class TestTcpWithTls(TransportConformance):
    @pytest.fixture(autouse=True)
    def _certificates(self, tls: Tls) -> None:
        self._tls = tls

    def run(self, size: int, function: Callable[[Transport], Any], *, timeout_seconds: float = 20.0) -> list[Any]:
        return run_tcp_threads(size, function, timeout_seconds=timeout_seconds, tls=self._tls)


def test_a_foreign_certificate_is_refused_by_both_sides(
    tls: Tls, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    foreign = make_tls(tmp_path)
    with DataListener(tls=tls) as listener, DataListener(tls=foreign) as other, DataListener() as plain:
        for visitor in (other, plain):
            generation = generation_of([listener, visitor])
            zero = TcpTransport(generation, 0, listener)
            one = TcpTransport(generation, 1, visitor, timeout_seconds=1.0)
            seconds_to_fail(lambda one=one: one.receive(torch.empty(1), 0), "rank 0")  # type: ignore[misc]
            one.abort("the test is over")
            zero.abort("the test is over")
            one.close()
            zero.close()
        deadline = time.monotonic() + 2
        while time.monotonic() < deadline and not any("refused" in record.message for record in caplog.records):
            time.sleep(0.01)
        assert any("no TLS connection" in record.message for record in caplog.records)
