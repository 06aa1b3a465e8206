"""The coordinator's memory on disk, so that a restarted one goes on where the last one was.

    with own(path):
        state = load(path) or CoordinatorState(run="r", token=new_token(), ...)
        save(path, state)

The file is replaced as a whole or not at all, and readable for its owner only: it has the token.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from minga.errors import ConfigError, PeerTimeout, ProtocolError, RunError
from minga.membership.rules import RosterState
from minga.net.strict import Count, StrictRecord, Text, decode, parse

__all__ = ["CoordinatorState", "load", "own", "save", "wait_for_address"]

_FORMAT = 1
_TICK_SECONDS = 0.02


@dataclass(kw_only=True)
class CoordinatorState(StrictRecord):
    """What a restarted coordinator must know."""

    run: Text
    token: Text
    address: Text
    port: Count
    roster: RosterState
    format: Count = _FORMAT


def load(path: Path) -> CoordinatorState | None:
    """What was saved; None if nothing was."""
    try:
        state = parse(CoordinatorState, decode(path.read_bytes()), "state")
    except FileNotFoundError:
        return None
    except (OSError, ProtocolError) as error:
        raise ConfigError(
            f"the coordinator's state in {path} can't be read: {error}; remove it to begin again"
        ) from None
    if state.format != _FORMAT:
        raise ConfigError(f"{path} has format {state.format}, this version of Minga writes {_FORMAT}; remove it")
    return state


def save(path: Path, state: CoordinatorState) -> None:
    """Replace the file; `OSError` if that fails, and then the old one is as it was."""
    new = path.with_name(f"{path.name}.new")
    try:
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump(asdict(state), file, default=sorted)  # sets, in an order of their own
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            new.unlink()
        raise
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)  # the new name, too, must be there after a power cut
    finally:
        os.close(directory)


@contextlib.contextmanager
def own(path: Path) -> Iterator[None]:
    """Be the only coordinator with this state; the kernel lets go when the process ends, however it does."""
    try:
        descriptor = os.open(path.with_name(f"{path.name}.lock"), os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise ConfigError(f"can't write beside {path}: {error.strerror}; choose another place for the state") from None
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise RunError(f"another coordinator works with {path}; end it first") from None
        yield
    finally:
        os.close(descriptor)


def wait_for_address(path: Path, timeout_seconds: float) -> tuple[str, int]:
    """Where the coordinator with this state listens, as soon as it does."""
    deadline = time.monotonic() + timeout_seconds
    while (state := load(path)) is None:
        if time.monotonic() > deadline:
            raise PeerTimeout(f"no coordinator wrote to {path} within {timeout_seconds:g} s; look into its log")
        time.sleep(_TICK_SECONDS)
    return state.address, state.port
