"""Which message goes where, and what happens to those that can't be right."""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections.abc import Callable, Iterator

import pytest
import torch
from tcp_members import call_in, members

from minga.comm.tcp import DataListener, TcpTransport
from minga.comm.tcp.frames import EXPECTED_BYTES, HEADER, SHORT_BYTES, WINDOW_BYTES, Kind
from minga.comm.transport import Transport
from minga.errors import PeerLost, PeerTimeout, UnsupportedError, WrongLength
from minga.net.sockets import Socket
from minga.testing import generation_of, run_tcp_threads

LONG = 50_000  # numbers of four bytes: more than is sent unasked


@contextlib.contextmanager
def beside_anybody(timeout_seconds: float = 5.0) -> Iterator[tuple[TcpTransport, Callable[[bytes], None]]]:
    """Rank 0, and what a rank 1 says that knows the secret and nothing else."""
    with DataListener() as listener:
        generation = generation_of([listener, listener])
        comm = TcpTransport(generation, 0, listener, timeout_seconds)
        connection = call_in(listener, generation)

        def say(content: bytes) -> None:
            rest = memoryview(content)
            while rest:
                rest = rest[connection.send([rest]) :]

        try:
            yield comm, say
        finally:
            comm.abort("the test is over")
            comm.close()
            connection.close()


@pytest.mark.parametrize("seed", range(12))
def test_any_order_of_tags_and_sizes_arrives_in_the_order_of_each_tag(seed: int) -> None:
    chance = random.Random(seed)
    messages = [(chance.randrange(4), chance.choice([0, 1, 300, 16_384, 16_385, LONG])) for _ in range(60)]
    order = list(messages)
    chance.shuffle(order)
    receives = [(tag, [size for each, size in messages if each == tag]) for tag in range(4)]

    def body(comm: Transport) -> None:
        if comm.rank == 0:
            pending = [
                comm.isend(torch.full((size,), float(number)), 1, tag) for number, (tag, size) in enumerate(messages)
            ]
            for each in pending:
                each.wait()
            return
        numbers = {tag: [number for number, (each, _) in enumerate(messages) if each == tag] for tag in range(4)}
        left = {tag: list(zip(numbers[tag], sizes, strict=True)) for tag, sizes in receives}
        posted = []
        for tag, _ in order:
            number, size = left[tag].pop(0)
            space = torch.full((size,), -1.0)
            source = None if chance.random() < 0.3 else 0
            posted.append((number, space, comm.ireceive(space, source, tag)))
            if chance.random() < 0.3:
                time.sleep(0.0005)
        for number, space, arrival in sorted(posted, key=lambda _: chance.random()):
            assert arrival.wait() == 0
            assert bool((space == number).all())

    run_tcp_threads(2, body)


def unasked_bytes(comm: Transport) -> int:
    """What a rank keeps that nobody has asked for."""
    assert isinstance(comm, TcpTransport)
    boxes = comm._endpoints[0].mailbox._boxes.values()
    return sum(len(each.view or b"") for box in boxes for each in box.arrived)


def test_many_more_short_messages_than_fit_into_the_window_wait_for_their_turn() -> None:
    count, numbers = 300, SHORT_BYTES // 4

    def body(comm: Transport) -> None:
        if comm.rank == 0:
            pending = [comm.isend(torch.full((numbers,), float(number)), 1, 3) for number in range(count)]
            comm.send(torch.zeros(1), 1, 4)  # not stuck behind the others
            for each in pending:
                each.wait()
            comm.receive(torch.empty(1), 1)
            assert isinstance(comm, TcpTransport)
            assert comm._endpoints[0].connections[1]._uncredited < WINDOW_BYTES, "what was taken is given back"
            return
        value = torch.empty(numbers)
        comm.receive(torch.empty(1), 0, 4)
        assert unasked_bytes(comm) < 2 * WINDOW_BYTES
        for number in range(count):
            comm.receive(value, 0, 3)
            assert float(value[0]) == float(value[-1]) == number
        comm.send(torch.zeros(1), 0)

    run_tcp_threads(2, body)


def test_a_long_message_goes_on_while_neither_side_waits() -> None:
    with members() as (zero, one):
        value = torch.zeros(20 * LONG)
        arrival = zero.ireceive(value, 1)
        departure = one.isend(torch.ones(20 * LONG), 0)
        deadline = time.monotonic() + 5
        while not (arrival.done and departure.done) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert arrival.done
        assert departure.done
        assert float(value.min()) == 1.0


def test_a_permit_is_there_before_the_message() -> None:
    """A receive that is posted first costs the sender no round trip: it never announces the message."""
    with members() as (zero, one):
        connection = one._endpoints[0].connections[0]
        arrival = zero.ireceive(torch.empty(LONG), 1)
        zero.isend(torch.empty(1), 1, 9)
        one.receive(torch.empty(1), 0, 9)  # what was sent before it, the permit, is here too
        one.send(torch.ones(LONG), 0)
        assert arrival.wait() == 1
        assert not any(connection._held.values())
        assert connection._permits[0] == 0


def test_a_receive_that_was_given_up_leaves_its_place_to_the_next_one() -> None:
    with members() as (zero, one):
        zero.ireceive(torch.full((LONG,), 7.0), 1).cancel()
        value = torch.empty(LONG)
        departure = one.isend(torch.ones(LONG), 0)
        zero.receive(value, 1)
        departure.wait()
        assert float(value.min()) == 1.0
        given_up = torch.full((LONG,), 7.0)
        zero.ireceive(given_up, 1).cancel()
        one.isend(torch.ones(LONG), 0).wait()  # the permit was still good
        time.sleep(0.05)
        assert float(given_up.min()) == 7.0
        zero.receive(value.zero_(), None)
        assert float(value.min()) == 1.0
        with pytest.raises(UnsupportedError, match="can't be cancelled"):
            one.isend(torch.ones(1), 0).cancel()


@pytest.mark.parametrize(("sent", "posted"), [(10, 20), (20, 10), (LONG, 10), (10, LONG), (LONG, 2 * LONG), (0, 5)])
@pytest.mark.parametrize("first", ["send", "receive"])
@pytest.mark.parametrize("source", [1, None])
def test_a_message_of_another_length_names_both_lengths(sent: int, posted: int, first: str, source: int | None) -> None:
    with members() as (zero, one):
        value = torch.full((posted,), 7.0)
        if first == "send":
            one.isend(torch.ones(sent), 0)
            time.sleep(0.02)
            arrival = zero.ireceive(value, source)
        else:
            arrival = zero.ireceive(value, source)
            time.sleep(0.02)
            one.isend(torch.ones(sent), 0)
        with pytest.raises(WrongLength, match=f"rank 1 sent {4 * sent} bytes where {4 * posted} were expected"):
            arrival.wait()
        assert bool((value == 7.0).all())
        with pytest.raises(PeerLost, match="rank 0"):
            one.receive(torch.empty(1), 0)


def test_a_gathering_of_different_lengths_names_both() -> None:
    with members() as (zero, one):
        errors: list[str] = []

        def gather() -> None:
            try:
                one.all_gather([torch.zeros(7), torch.zeros(7)])
            except PeerLost as error:
                errors.append(str(error))

        thread = threading.Thread(target=gather)
        thread.start()
        with pytest.raises(PeerLost, match=r"rank 1( sent 28 bytes where 12 were expected| is gone)"):
            zero.all_gather([torch.zeros(3), torch.zeros(3)])
        thread.join(5)
        assert errors


HUGE = 1 << 60
NONSENSE = {
    "more unasked than allowed": (HEADER.pack(Kind.UNASKED, 0, 0, HUGE), "unasked"),
    "more and more unasked": (
        257 * (HEADER.pack(Kind.UNASKED, 0, 9, 1 << 16) + bytes(1 << 16)),
        "that nobody has taken",
    ),
    "a message without a permit": (HEADER.pack(Kind.MESSAGE, 0, 0, HUGE), "without a permit"),
    "an announcement of another length": (
        HEADER.pack(Kind.ANNOUNCE, 0, 0, HUGE),
        f"sent {HUGE} bytes where 40 were expected",
    ),
    "an unknown kind": (HEADER.pack(99, 0, 0, 8), "kind 99"),
    "bytes of no meaning": (b"\xff" * 100, "kind 255"),
}


@pytest.mark.parametrize("what", NONSENSE)
def test_nonsense_ends_the_connection_and_names_the_rank(what: str) -> None:
    content, words = NONSENSE[what]
    with beside_anybody() as (comm, say):
        arrival = comm.ireceive(torch.empty(10), 1)

        def try_to_say() -> None:
            with contextlib.suppress(OSError):
                say(content)

        thread = threading.Thread(target=try_to_say)
        thread.start()
        with pytest.raises(PeerLost, match=f"rank 1 .*{words}"):
            arrival.wait()
        thread.join(5)


def test_announcements_that_nobody_asks_for_have_an_end() -> None:
    with beside_anybody() as (comm, say):
        arrival = comm.ireceive(torch.empty(10), 1, tag=1)

        def announce() -> None:
            with contextlib.suppress(OSError):
                for _ in range(70):
                    say(HEADER.pack(Kind.ANNOUNCE, 0, 5, HUGE) * 1000)

        thread = threading.Thread(target=announce)
        thread.start()
        with pytest.raises(PeerLost, match="nobody asks for"):
            arrival.wait()
        thread.join(5)


def test_permits_and_credits_that_were_not_owed_do_no_harm() -> None:
    with beside_anybody() as (comm, say):
        say(
            HEADER.pack(Kind.PERMIT, 0, 3, 0) * 5
            + HEADER.pack(Kind.CREDIT, 0, 0, 1 << 40)
            + HEADER.pack(Kind.UNASKED, 0, 0, 4)
            + b"abcd"
        )
        value = torch.empty(4, dtype=torch.uint8)
        assert comm.receive(value, 1) == 1
        assert bytes(value.tolist()) == b"abcd"
        say(HEADER.pack(Kind.GOODBYE, 0, 0, 0))


def test_nobody_is_woken_for_each_packet(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = 0
    original = Socket.receive_into

    def counted(self: Socket, view: memoryview) -> int | None:
        nonlocal calls
        calls += 1
        return original(self, view)

    with beside_anybody() as (comm, say):
        length = 2_000_000
        arrival = comm.ireceive(torch.empty(length, dtype=torch.uint8), 1)
        monkeypatch.setattr(Socket, "receive_into", counted)

        def trickle() -> None:
            say(HEADER.pack(Kind.MESSAGE, 0, 0, length))
            for _ in range(length // 2000):
                say(bytes(2000))
                time.sleep(0.0002)

        thread = threading.Thread(target=trickle)
        thread.start()
        assert arrival.wait() == 1
        thread.join(5)
        assert calls < 60, "the kernel may wake us for each of a thousand pieces, or for each quarter of a megabyte"


def test_a_long_message_over_a_slow_link_is_not_given_up_while_it_comes_forward() -> None:
    piece = 1 << 18
    with beside_anybody(timeout_seconds=0.4) as (comm, say):

        def trickle(pieces: int) -> None:
            say(HEADER.pack(Kind.MESSAGE, 0, 0, 6 * piece))
            for _ in range(pieces):
                say(bytes(piece))
                time.sleep(0.2)

        for pieces in (6, 2):
            arrival = comm.ireceive(torch.empty(6 * piece, dtype=torch.uint8), 1)
            thread = threading.Thread(target=trickle, args=(pieces,))
            thread.start()
            if pieces == 6:
                assert arrival.wait() == 1
            else:
                with pytest.raises(PeerTimeout, match="rank 1"):
                    arrival.wait()
            thread.join(5)


@pytest.mark.parametrize("numbers", [LONG, EXPECTED_BYTES // 4])
def test_what_is_expected_travels_while_the_other_side_computes(numbers: int) -> None:
    """A gathering asks for nothing, so that a slow link is used before all are there; up to a limit."""
    with members() as (zero, one):
        sent, gathered = torch.ones(numbers), [torch.zeros(numbers), torch.empty(numbers)]
        goes_at_once = sent.nbytes if numbers == LONG else 0
        thread = threading.Thread(target=one.all_gather, args=([torch.empty(numbers), sent],))
        thread.start()
        began = time.monotonic()
        while time.monotonic() < began + (0.1 if not goes_at_once else 5) and unasked_bytes(zero) < sent.nbytes:
            zero._endpoints[0].attend()
            time.sleep(0.005)
        assert unasked_bytes(zero) == goes_at_once
        zero.all_gather(gathered)
        thread.join(5)
        assert float(gathered[1].min()) == 1.0
