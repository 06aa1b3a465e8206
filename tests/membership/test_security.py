"""Strangers who come to the coordinator: each is refused with a line in the log, and the run does not notice."""

from __future__ import annotations

import contextlib
import json
import logging
import re
import secrets
import select
import socket
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest
from people import RUN, TOKEN, at, data_port, info, join_all, make_coordinator, members, until

from minga.errors import PeerTimeout, Refused
from minga.membership.coordinator import coordinating
from minga.membership.member import Member
from minga.membership.messages import Hello, to_dict
from minga.membership.protocol import CLAIM
from minga.net.greeting import PROTOCOL, proof

Where = tuple[str, int]
OPENING, CHALLENGE, PROOF, REFUSAL = range(1, 5)


@pytest.fixture
def where(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> Iterator[Where]:
    """A run with two members, who must be in the same generation, connected, when the test is over."""
    caplog.set_level(logging.INFO)
    coordinator = make_coordinator(tmp_path, 2, greeting_seconds=0.6)
    with coordinating(coordinator) as where, members(*where, ids=["a", "b"]) as them:
        join_all(them)
        yield where
        time.sleep(0.2)
        for member in them:
            assert member.connected and not member.lost_contact
            assert member.generation is not None and member.generation.number == 1


def frame(table: Any) -> bytes:
    body = json.dumps(table).encode()
    return struct.pack(">I", len(body)) + body


def said(kind: int, content: bytes) -> bytes:
    """A message of the greeting."""
    return struct.pack("!6sBBH", b"minga\n", PROTOCOL, kind, len(content)) + content


def answer(connection: socket.socket) -> tuple[int, bytes]:
    """Kind and content of the other side's message of the greeting."""
    _, _, kind, length = struct.unpack("!6sBBH", read(connection, 10))
    return kind, read(connection, length)


def read_frame(connection: socket.socket) -> dict[str, Any]:
    (length,) = struct.unpack(">I", read(connection, 4))
    table: dict[str, Any] = json.loads(read(connection, length))
    return table


def read(connection: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        data += (piece := connection.recv(count - len(data)))
        assert piece, "the connection ended"
    return data


def ends(connection: socket.socket, timeout_seconds: float = 3) -> float:
    """Wait until the other side hangs up; the seconds it took."""
    begin = time.monotonic()
    connection.settimeout(timeout_seconds)
    with contextlib.suppress(ConnectionResetError):
        while connection.recv(4096):
            pass
    return time.monotonic() - begin


def greet(
    connection: socket.socket,
    *,
    nonce: bytes = b"n" * 32,
    side: Literal["caller", "listener"] = "caller",
    run: str = RUN,
) -> int:
    """The greeting by hand; what kind of message the coordinator's last answer is."""
    opening = b"n" * 32 + CLAIM
    connection.sendall(said(OPENING, opening))
    _, challenge = answer(connection)
    assert challenge[32:].decode() == RUN
    connection.sendall(said(PROOF, proof(TOKEN.encode(), side, opening, challenge[:32] + run.encode())))
    return answer(connection)[0]


def refused(caplog: pytest.LogCaptureFixture, words: str) -> None:
    until(lambda: re.search(f"refused .*{words}", caplog.text), 3)


def test_a_wrong_token(where: Where, caplog: pytest.LogCaptureFixture) -> None:
    with data_port() as port:
        member = Member(at(where, token="x" * 64), info("c", port=port))
        begin = time.monotonic()
        with pytest.raises(Refused, match="its token is not that of the run test-run"):
            member.join(5)
        assert time.monotonic() - begin < 1
        member.close()
    refused(caplog, "its token is not that of the run")


def test_the_token_never_travels(tmp_path: Path) -> None:
    """A listener between member and coordinator sees neither it nor anything that is the same twice."""
    heard: list[bytes] = []
    with coordinating(make_coordinator(tmp_path, 1)) as where, data_port() as port:
        for _ in range(2):
            with eavesdropping(where) as (between, words):
                member = Member(at(between), info("a", port=port))
                member.join(5)
                member.leave()
            heard.append(b"".join(words))
    assert TOKEN.encode() not in b"".join(heard)
    # Nonces and proofs are all that follows a head of the greeting.
    first, second = [set(re.findall(rb"minga\n.[\x01-\x03].[\x00-\xff](.{32})", all, re.DOTALL)) for all in heard]
    assert len(first) == len(second) == 4
    assert not first & second


@contextlib.contextmanager
def eavesdropping(where: Where) -> Iterator[tuple[Where, list[bytes]]]:
    """A place that passes one connection on to the coordinator, and what went through in both directions."""
    words: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def pass_on() -> None:
            with contextlib.suppress(OSError):
                near, _ = listener.accept()
                with near, socket.create_connection(where) as far:
                    while True:
                        for source in select.select([near, far], [], [], 5)[0]:
                            piece = source.recv(65536)
                            if not piece:
                                return
                            words.append(piece)
                            (far if source is near else near).sendall(piece)

        thread = threading.Thread(target=pass_on)
        thread.start()
        yield listener.getsockname(), words
        thread.join()


def recording(where: Where) -> list[bytes]:
    """What a real member sends in its greeting, recorded on the way."""
    sent = []
    with socket.create_connection(where) as connection:
        opening = secrets.token_bytes(32) + CLAIM
        sent.append(said(OPENING, opening))
        connection.sendall(sent[0])
        _, challenge = answer(connection)
        sent.append(said(PROOF, proof(TOKEN.encode(), "caller", opening, challenge)))
        connection.sendall(sent[1])
        assert answer(connection)[0] == PROOF  # it was accepted
    return sent


def test_a_recorded_greeting_is_worthless_on_this_run_and_on_another(
    where: Where, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    recorded = recording(where)
    other = tmp_path / "other"
    other.mkdir()
    # The other run even has the same token.
    with coordinating(make_coordinator(other, 1, run="other-run")) as elsewhere:
        for target, run in ((where, RUN), (elsewhere, "other-run")):
            caplog.clear()
            with socket.create_connection(target) as connection:
                connection.sendall(recorded[0])
                assert answer(connection)[1][32:].decode() == run
                connection.sendall(recorded[1])
                assert answer(connection)[0] == REFUSAL
                assert ends(connection) < 1
            refused(caplog, f"its token is not that of the run {run}")


def test_a_proof_for_another_run_and_a_reflected_one(where: Where, caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_connection(where) as connection:
        assert greet(connection, run="other-run") == REFUSAL
    with socket.create_connection(where) as connection:
        assert greet(connection, side="listener") == REFUSAL
    refused(caplog, "its token is not")


def test_a_rank_that_calls_a_coordinator_learns_that_it_is_one(where: Where, caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_connection(where) as connection:
        connection.sendall(said(OPENING, bytes(32) + b"data"))
        assert answer(connection) == (REFUSAL, b"refused: this is a coordinator's port; look at the port")


def test_a_member_does_not_believe_a_false_coordinator(where: Where) -> None:
    """Somebody who took the coordinator's place, but does not know the token, gets nothing out of a member."""
    with socket.create_server(("127.0.0.1", 0)) as listener, data_port() as port:
        member = Member(at(listener.getsockname()), info("c", port=port))
        with pytest.raises(PeerTimeout):
            member.join(0.2)
        connection, _ = listener.accept()
        with connection:
            connection.settimeout(3)
            assert answer(connection)[0] == OPENING
            connection.sendall(said(CHALLENGE, b"e" * 32 + RUN.encode()))
            _, theirs = answer(connection)
            connection.sendall(said(PROOF, theirs))  # its own proof, sent back
            assert connection.recv(100) == b"", "it hangs up without another word"
        assert TOKEN.encode() not in theirs
        until(lambda: "could not prove that it knows the secret" in member.message)
        member.close()


def test_another_run_s_coordinator_is_noticed(where: Where) -> None:
    with data_port() as port:
        member = Member(at(where, run="my-run"), info("c", port=port))
        with pytest.raises(Refused, match="this is the coordinator of the run test-run, not of my-run"):
            member.join(5)
        member.close()


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"\xff\xff\xff\xff" + b"x" * 100, "no greeting of Minga"),
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "no greeting of Minga .it begins with 'GET "),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "looks like TLS"),
        (frame({"kind": "hello"}), "no greeting of Minga"),
        (said(1, bytes(5000)), "a greeting of 5000 bytes, of which at most 1024"),
        (said(1, bytes(7)), "an opening of 7 bytes"),
        (said(3, bytes(32)), "a proof where an opening was expected"),
        (said(1, bytes(40)).replace(bytes([PROTOCOL, 1]), b"\x09\x01", 1), "it speaks protocol 9"),
        (b"", "ended the connection"),
        (b"\x00\x00", "ended the connection in the middle of a message"),
    ],
)
def test_garbage(where: Where, caplog: pytest.LogCaptureFixture, data: bytes, words: str) -> None:
    with socket.create_connection(where) as connection:
        connection.sendall(data)
        if len(data) < 4:
            connection.shutdown(socket.SHUT_WR)
        assert ends(connection) < 2
    refused(caplog, words)


def test_who_dawdles_and_who_says_nothing_is_dropped(where: Where, caplog: pytest.LogCaptureFixture) -> None:
    """Slow loris: a byte now and then; half-open: no byte at all. Both have the same deadline."""
    with socket.create_connection(where) as slow, socket.create_connection(where) as silent:
        begin = time.monotonic()
        with contextlib.suppress(ConnectionError):
            for byte in said(OPENING, bytes(40)):
                slow.sendall(bytes([byte]))
                time.sleep(0.1)
                if time.monotonic() - begin > 2:
                    break
        assert time.monotonic() - begin < 2
        ends(silent, 1)
    until(lambda: caplog.text.count("no greeting within 0.6 s") == 2)


def test_who_knows_the_token_but_says_no_hello_is_dropped(where: Where, caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_connection(where) as connection:
        assert greet(connection) == PROOF
        assert ends(connection) < 2
    refused(caplog, "no hello in time")
    with socket.create_connection(where) as connection:
        assert greet(connection) == PROOF
        connection.sendall(frame({"kind": "leave", "finished": True}))
        assert ends(connection) < 2
    refused(caplog, "the first message should be a hello")


def test_a_member_that_sends_garbage_is_out_and_nobody_else(where: Where, caplog: pytest.LogCaptureFixture) -> None:
    with data_port() as port, socket.create_connection(where) as connection:
        assert greet(connection) == PROOF
        connection.sendall(frame(to_dict(Hello(info=info("z", port=port)))))
        assert read_frame(connection)["kind"] == "welcome"
        connection.sendall(b"\xff" * 64)
        assert ends(connection) < 2
    refused(caplog, "z .*a message of 4294967295 bytes, of which at most 1048576")


def test_a_crowd_does_not_keep_members_out(where: Where, caplog: pytest.LogCaptureFixture) -> None:
    with contextlib.ExitStack() as stack:
        crowd = [stack.enter_context(socket.create_connection(where)) for _ in range(200)]
        begin = time.monotonic()
        with socket.create_connection(where) as connection:
            connection.settimeout(2)
            assert greet(connection) == PROOF
        assert time.monotonic() - begin < 0.5
        assert len(crowd) == 200
    refused(caplog, "more than 64 unfinished greetings")
    assert caplog.text.count("unfinished greetings") < 60, "the log is not flooded"


def test_only_one_address_is_listened_on(where: Where) -> None:
    _, port = where
    found = list(listening(port))
    assert found == ["0100007F"], "127.0.0.1 as the kernel writes it, and nothing else"


def listening(port: int) -> Iterator[str]:
    """Local addresses of listening sockets with this port, IPv4 and IPv6, as /proc tells them."""
    for name in ("tcp", "tcp6"):
        path = Path("/proc/self/net") / name
        for line in path.read_text().splitlines()[1:] if path.exists() else []:
            local, state = line.split()[1], line.split()[3]
            if state == "0A" and int(local.split(":")[1], 16) == port:
                yield local.split(":")[0]


# Labels for people, and certificates, which have dates and are made by hand.
DATED = {
    "data/fetching/verify.py",
    "data/preparing/prepare.py",
    "net/certificates.py",
    "training/checkpoints/writer.py",
    "runs/directory.py",
    "study/directory.py",
}


def test_nothing_looks_at_a_clock_that_jumps_nor_reads_pickles() -> None:
    """Setting the wall clock does nothing, since nothing decides by it."""
    import minga

    root = Path(minga.__file__).parent
    looking = set()
    for path in root.rglob("*.py"):
        text = path.read_text()
        if re.search(r"time\.time\(|\.now\(.*UTC|utcnow|today\(|localtime|gmtime|time_ns|strftime", text):
            looking.add(str(path.relative_to(root)))
        assert not re.search(r"import pickle|pickle\.|torch\.load\(", text), path.name
    assert looking <= DATED
