"""Finding one's rank from the environment that `minga launch` or torchrun has set."""

from __future__ import annotations

import contextlib
import os
import socket
from dataclasses import dataclass
from pathlib import Path

from minga.comm.threads import ThreadWorld
from minga.comm.torch_dist import TorchTransport
from minga.comm.transport import Transport
from minga.errors import ConfigError
from minga.launch.rendezvous import hold_meeting, join_meeting
from minga.net.interfaces import own_address_towards

__all__ = ["Surroundings", "connect", "surroundings"]


@dataclass(frozen=True)
class Surroundings:
    """What the launcher says: who this is, where the others are found."""

    rank: int
    size: int
    address: str
    port: int
    held: bool
    """Whether the launcher holds the meeting; otherwise rank 0 does."""
    run: Path | None
    """The run's directory, where there is one."""
    strategy: str | None
    timeout_seconds: float


def surroundings() -> Surroundings | None:
    """None where nothing is set: a script that was started by itself."""
    environment = os.environ
    if "RANK" not in environment or "WORLD_SIZE" not in environment:
        return None
    try:
        return Surroundings(
            rank=int(environment["RANK"]),
            size=int(environment["WORLD_SIZE"]),
            address=environment.get("MASTER_ADDR", "127.0.0.1"),
            port=int(environment["MASTER_PORT"]),
            held="MINGA_RUN" in environment or environment.get("TORCHELASTIC_USE_AGENT_STORE") == "True",
            run=Path(environment["MINGA_RUN"]) if "MINGA_RUN" in environment else None,
            strategy=environment.get("MINGA_STRATEGY"),
            timeout_seconds=float(environment.get("MINGA_TIMEOUT_SECONDS", "120")),
        )
    except (KeyError, ValueError) as error:
        raise ConfigError(
            f"RANK and WORLD_SIZE are set, but {error} is missing or no number; "
            "start the script with 'minga launch' or torchrun, or set MASTER_ADDR and MASTER_PORT too"
        ) from None


def connect(around: Surroundings | None, resources: contextlib.ExitStack) -> Transport:
    """The transport to the other ranks; of a script that was started by itself, one that leads nowhere."""
    if around is None:
        return ThreadWorld(1).transport(0)
    address = socket.gethostbyname(around.address)
    if not around.held and around.rank == 0:
        resources.enter_context(hold_meeting(address, around.port))
    name = around.run.name if around.run is not None else os.environ.get("TORCHELASTIC_RUN_ID", "minga")
    store = join_meeting(address, around.port, name, around.timeout_seconds)
    own = own_address_towards(address, around.port)
    # All hosts of a lab have this machine's name, so the launcher gives them others.
    store.set(f"host/{around.rank}", os.environ.get("MINGA_HOST") or socket.gethostname())
    hosts = [store.get(f"host/{rank}").decode() for rank in range(around.size)]
    return TorchTransport(
        store, rank=around.rank, size=around.size, address=own, timeout_seconds=around.timeout_seconds, hosts=hosts
    )
