"""The numbers that the roster goes by.

rules = Rules(expect=4, min_nodes=2, heartbeat_timeout_seconds=3)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from minga.base.config import Config, FieldError

__all__ = ["Rules"]

_Number = Annotated[int, Field(ge=1)]
_Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]


@dataclass(frozen=True, kw_only=True)
class Rules(Config):
    """How many make a run, and how long is too long."""

    expect: _Number = 1
    """Members (workers and servers) that the first generation waits for."""
    min_nodes: _Number = 1
    """Workers without whom no generation is formed."""
    min_servers: int = 0
    """Servers without whom no generation is formed."""
    max_members: _Number = 1024
    """Members and joiners at a time; more are refused."""
    heartbeat_seconds: _Seconds = 1.0
    """Between two signs of life of a member."""
    heartbeat_timeout_seconds: _Seconds = 5.0
    """A member that was not heard of for so long is out."""
    reconnect_seconds: float = 0.25
    """A member whose connection has ended is out unless it comes back this soon."""
    return_seconds: float = 1.5
    """The same after the coordinator's own restart, when others say that the member is gone."""
    join_window_seconds: float = 0.25
    """The first who wants to join waits this long for others who come at the same time."""
    join_interval_seconds: float = 1.0
    """Between a generation and the next one that only lets somebody join."""
    progress_timeout_seconds: float = 5.0
    """A member that others suspect is out if it made no step (or formed nothing) for so long."""
    suspicion_seconds: float = 1.0
    """Between the first suspicion and the verdict, so that everybody can tell whom they wait for."""
    forming_timeout_seconds: _Seconds = 30.0
    """Who has not formed a generation so long after its announcement is out of the next one."""
    message_seconds: _Seconds = 3.0
    """Between two messages to members that wait."""

    def check(self) -> None:
        if self.min_nodes + self.min_servers > self.expect:
            raise FieldError(
                ("expect",),
                f"{self.expect} members are fewer than min_nodes = {self.min_nodes} and "
                f"min_servers = {self.min_servers} together; expect at least as many",
            )
        if self.heartbeat_timeout_seconds < 2 * self.heartbeat_seconds:
            raise FieldError(
                ("heartbeat_timeout_seconds",),
                f"{self.heartbeat_timeout_seconds:g} s leaves no room for one late heartbeat (they come every "
                f"{self.heartbeat_seconds:g} s); give at least {2 * self.heartbeat_seconds:g}",
            )
