"""Strangers at the coordinator's door: each is refused with a line in the log, and the run does not notice."""

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
from typing import Any

import pytest
from people import RUN, TOKEN, data_door, info, join_all, make_coordinator, members, until

from minga.errors import PeerTimeout, Refused
from minga.membership.coordinator_process import coordinating
from minga.membership.greeting import proof
from minga.membership.member import Member
from minga.membership.messages import Hello, to_dict

Where = tuple[str, int]


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


def knock(connection: socket.socket, nonce: str = "ab" * 32, token: str = TOKEN, run: str = RUN) -> dict[str, Any]:
    """The greeting by hand; the coordinator's last answer."""
    connection.sendall(frame({"kind": "knock", "protocol": 1, "nonce": nonce}))
    challenge = read_frame(connection)
    said = proof(token, "member", run, nonce, challenge["nonce"])
    connection.sendall(frame({"kind": "proof", "proof": said}))
    return read_frame(connection)


def refused(caplog: pytest.LogCaptureFixture, words: str) -> None:
    until(lambda: re.search(f"refused .*{words}", caplog.text), 3)


def test_a_wrong_token(where: Where, caplog: pytest.LogCaptureFixture) -> None:
    with data_door() as port:
        member = Member(*where, "x" * 64, info("c", port=port))
        begin = time.monotonic()
        with pytest.raises(Refused, match="its token is not that of the run test-run"):
            member.join(5)
        assert time.monotonic() - begin < 1
        member.close()
    refused(caplog, "its token is not that of the run")


def test_the_token_never_travels(tmp_path: Path) -> None:
    """A listener between member and coordinator sees neither it nor anything that is the same twice."""
    heard: list[bytes] = []
    with coordinating(make_coordinator(tmp_path, 1)) as where, data_door() as port:
        for _ in range(2):
            with eavesdropping(where) as (between, words):
                member = Member(*between, TOKEN, info("a", port=port))
                member.join(5)
                member.leave()
            heard.append(b"".join(words))
    assert TOKEN.encode() not in b"".join(heard)
    first, second = [set(re.findall(rb'"(?:nonce|proof)":"(\w{64})"', said)) for said in heard]
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
    """What a real member sends, frame by frame, recorded on the way."""
    sent = []
    with socket.create_connection(where) as connection:
        nonce = secrets.token_hex(32)
        sent.append(frame({"kind": "knock", "protocol": 1, "nonce": nonce}))
        connection.sendall(sent[0])
        challenge = read_frame(connection)
        sent.append(frame({"kind": "proof", "proof": proof(TOKEN, "member", RUN, nonce, challenge["nonce"])}))
        connection.sendall(sent[1])
        assert read_frame(connection)["kind"] == "proof"  # it was accepted
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
                assert read_frame(connection)["run"] == run
                connection.sendall(recorded[1])
                assert read_frame(connection)["kind"] == "refusal"
                assert ends(connection) < 1
            refused(caplog, f"its token is not that of the run {run}")


def test_a_proof_for_another_run_and_a_reflected_one(where: Where, caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_connection(where) as connection:
        assert knock(connection, run="other-run")["kind"] == "refusal"
    with socket.create_connection(where) as connection:
        connection.sendall(frame({"kind": "knock", "protocol": 1, "nonce": "cd" * 32}))
        challenge = read_frame(connection)
        said = proof(TOKEN, "coordinator", RUN, "cd" * 32, challenge["nonce"])
        connection.sendall(frame({"kind": "proof", "proof": said}))
        assert read_frame(connection)["kind"] == "refusal"
    refused(caplog, "its token is not")


def test_a_member_does_not_believe_a_false_coordinator(where: Where) -> None:
    """Somebody who took the coordinator's place, but does not know the token, gets nothing out of a member."""
    with socket.create_server(("127.0.0.1", 0)) as listener, data_door() as port:
        member = Member(*listener.getsockname(), TOKEN, info("c", port=port))
        with pytest.raises(PeerTimeout):
            member.join(0.2)
        connection, _ = listener.accept()
        with connection:
            connection.settimeout(3)
            nonce = read_frame(connection)["nonce"]
            connection.sendall(frame({"kind": "challenge", "run": RUN, "nonce": "ef" * 32}))
            said = read_frame(connection)["proof"]
            connection.sendall(frame({"kind": "proof", "proof": said}))  # its own proof, sent back
            assert connection.recv(100) == b"", "it hangs up without another word"
        assert nonce and TOKEN not in said
        until(lambda: "does not know the run's token" in member.message)
        member.close()


def test_another_run_s_coordinator_is_noticed(where: Where) -> None:
    with data_door() as port:
        member = Member(*where, TOKEN, info("c", port=port), run="my-run")
        with pytest.raises(Refused, match="this is the coordinator of the run test-run, not of my-run"):
            member.join(5)
        member.close()


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"\xff\xff\xff\xff" + b"x" * 100, "a message of 4294967295 bytes"),
        (struct.pack(">I", 5000), "at most 4096"),
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "at most 4096 are accepted .it begins with 'GET '"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "looks like TLS"),
        (struct.pack(">I", 4) + b"\xff\xfe\xfd\xfc", "no JSON"),
        (frame([1, 2]), "should be a JSON object"),
        (frame({"kind": "knock"}), "missing 'protocol'"),
        (frame({"kind": "knock", "protocol": 9, "nonce": "x"}), "it speaks protocol 9"),
        (frame({"kind": "knock", "protocol": 1, "nonce": "x"}), "64 hexadecimal digits"),
        (frame({"kind": "hello"}), "a greeting without 'knock'"),
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
            for byte in frame({"kind": "knock", "protocol": 1, "nonce": "ab" * 32}):
                slow.sendall(bytes([byte]))
                time.sleep(0.1)
                if time.monotonic() - begin > 2:
                    break
        assert time.monotonic() - begin < 2
        ends(silent, 1)
    until(lambda: caplog.text.count("no greeting within 0.6 s") == 2)


def test_who_knows_the_token_but_says_no_hello_is_dropped(where: Where, caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_connection(where) as connection:
        assert knock(connection)["kind"] == "proof"
        assert ends(connection) < 2
    refused(caplog, "no hello in time")
    with socket.create_connection(where) as connection:
        assert knock(connection)["kind"] == "proof"
        connection.sendall(frame({"kind": "leave", "finished": True}))
        assert ends(connection) < 2
    refused(caplog, "the first message should be a hello")


def test_a_member_that_sends_garbage_is_out_and_nobody_else(where: Where, caplog: pytest.LogCaptureFixture) -> None:
    with data_door() as port, socket.create_connection(where) as connection:
        assert knock(connection)["kind"] == "proof"
        connection.sendall(frame(to_dict(Hello(info=info("z", port=port)))))
        assert read_frame(connection)["kind"] == "welcome"
        connection.sendall(b"\xff" * 64)
        assert ends(connection) < 2
    refused(caplog, "z .*a message of 4294967295 bytes, of which at most 1048576")


def test_a_crowd_at_the_door_does_not_keep_members_out(where: Where, caplog: pytest.LogCaptureFixture) -> None:
    with contextlib.ExitStack() as stack:
        crowd = [stack.enter_context(socket.create_connection(where)) for _ in range(200)]
        begin = time.monotonic()
        with socket.create_connection(where) as connection:
            connection.settimeout(2)
            assert knock(connection)["kind"] == "proof"
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
    "membership/certificates.py",
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
