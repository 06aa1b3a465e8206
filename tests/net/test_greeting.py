"""Both sides prove that they know a secret, whatever strangers say."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from minga.errors import ConfigError, ProtocolError, Refused
from minga.net.greeting import PROTOCOL, check, check_token, hear, introduce, proof, refusal
from minga.net.sockets import Socket

KEY = b"a key that both sides know"


@pytest.fixture
def pair() -> Iterator[tuple[Socket, Socket]]:
    first, second = (Socket(each) for each in socket.socketpair())
    yield first, second
    first.close()
    second.close()


async def listener(connection: Socket) -> bytes:
    """The claim, if the caller is let in."""
    opening = await hear(connection)
    await connection.send_all(await check(connection, opening, KEY, name="a run", wrong="its key is another one"))
    return opening.claim


def meet(pair: tuple[Socket, Socket], key: bytes, **options: Any) -> list[object]:
    """What both sides come to: their results, or the errors."""

    async def both() -> list[object]:
        async with asyncio.timeout(0.5):
            calling = asyncio.ensure_future(introduce(pair[0], key, **options))
            hearing = asyncio.ensure_future(listener(pair[1]))
            for each in (await asyncio.wait([calling, hearing], timeout=0.2))[1]:
                each.cancel()
            return list(await asyncio.gather(calling, hearing, return_exceptions=True))

    return asyncio.run(both())


def test_both_sides_know_each_other(pair: tuple[Socket, Socket]) -> None:
    assert meet(pair, KEY, claim=b"data") == ["a run", b"data"]


def test_the_name_that_was_expected(pair: tuple[Socket, Socket]) -> None:
    assert meet(pair, KEY, name="a run") == ["a run", b""]


def test_another_key_is_refused(pair: tuple[Socket, Socket]) -> None:
    _, error = meet(pair, b"another")
    assert isinstance(error, Refused) and str(error) == "its key is another one"


def test_another_name_is_noticed(pair: tuple[Socket, Socket]) -> None:
    error, _ = meet(pair, KEY, name="my run")
    assert isinstance(error, Refused) and "this is the coordinator of the run a run, not of my run" in str(error)


def frame(kind: int, content: bytes, protocol: int = PROTOCOL) -> bytes:
    return struct.pack("!6sBBH", b"minga\n", protocol, kind, len(content)) + content


STRANGE: list[tuple[bytes, str]] = [
    (b"GET / HTTP/1.1\r\n\r\n", "no greeting of Minga .it begins with 'GET / HTTP'.*is the port right"),
    (b"HTTP/1.1 400 Bad Request\r\n", "it begins with 'HTTP/1.1 4'"),
    (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "looks like TLS"),
    (b"\xff" * 20, "no greeting of Minga$"),
    (frame(1, bytes(60), protocol=9), "it speaks protocol 9, this is 2: install the same version"),
    (frame(1, bytes(60_000)), "a greeting of 60000 bytes, of which at most 1024"),
    (frame(77, bytes(40)), "a message of kind 77 where an? .* was expected"),
    (frame(3, bytes(32)), "a proof where an? .* was expected"),
]


@pytest.mark.parametrize(("said", "why"), STRANGE)
@pytest.mark.parametrize("side", [hear, lambda connection: introduce(connection, KEY)])
def test_strange_answers_end_it(
    pair: tuple[Socket, Socket], side: Callable[[Socket], Awaitable[object]], said: bytes, why: str
) -> None:
    pair[1].send([memoryview(said)])
    with pytest.raises((ProtocolError, Refused), match=why):
        asyncio.run(side(pair[0]))  # type: ignore[arg-type]


@pytest.mark.parametrize("content", [b"", bytes(31)])
def test_a_nonce_that_is_too_short(pair: tuple[Socket, Socket], content: bytes) -> None:
    pair[1].send([memoryview(frame(1, content))])
    with pytest.raises(ProtocolError, match=f"an opening of {len(content)} bytes"):
        asyncio.run(hear(pair[0]))


def test_a_refusal_is_fit_to_be_shown(pair: tuple[Socket, Socket]) -> None:
    pair[1].send([memoryview(refusal("\x1b[31m no " + "x" * 3000))])
    with pytest.raises(Refused) as caught:
        asyncio.run(introduce(pair[0], KEY))
    assert str(caught.value).isprintable() and len(str(caught.value)) <= 500


def test_who_ends_the_connection_is_noticed(pair: tuple[Socket, Socket]) -> None:
    pair[1].send([memoryview(b"ming")])
    pair[1].shutdown()
    with pytest.raises(ConnectionResetError, match="in the middle of a message"):
        asyncio.run(hear(pair[0]))
    with pytest.raises(ConnectionResetError, match="between two messages"):
        asyncio.run(pair[0].receive(3))


def test_a_proof_depends_on_everything() -> None:
    said = {
        proof(b"token-token-token", "caller", b"a", b"b"),
        proof(b"token-token-other", "caller", b"a", b"b"),
        proof(b"token-token-token", "listener", b"a", b"b"),
        proof(b"token-token-token", "caller", b"x", b"b"),
        proof(b"token-token-token", "caller", b"a", b"x"),
        proof(b"token-token-token", "caller", b"ab", b""),
        proof(b"token-token-token", "caller", b"", b"ab"),
    }
    assert len(said) == 7


def test_a_short_token_is_no_token() -> None:
    with pytest.raises(ConfigError, match="6 characters can be guessed"):
        check_token("secret")
