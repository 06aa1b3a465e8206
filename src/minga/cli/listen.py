"""`minga train --listen`: other machines may join, and people see how."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from minga.errors import ConfigError

if TYPE_CHECKING:
    from minga.launch.listening import Listening

__all__ = ["listening_from"]


def listening_from(
    listen: str | None,
    *,
    interface: str | None,
    expect: int | None,
    here: int | None,
    tls: str | None,
    token_file: Path | None,
    quiet: bool,
) -> Listening | None:
    """What the options say; None where nobody else is to join."""
    given = {"--expect": expect, "--interface": interface, "--tls": tls, "--token-file": token_file}
    if listen is None and interface is None:
        for name, value in given.items():
            if value is not None:
                raise ConfigError(f"{name} is for runs with other machines; give --listen ADDRESS[:PORT] too")
        return None
    from minga.launch.listening import Listening, find_token

    token = find_token(None, token_file)

    def when_listening(address: str, port: int) -> None:
        _print_how_to_join(
            address, port, listening, None if token is not None else listening.token, expect, quiet=quiet
        )

    listening = Listening.at(
        listen, interface=interface, here=here or 1, tls=tls, token=token, when_listening=when_listening
    )
    return listening


def _print_how_to_join(
    address: str, port: int, listening: Listening, new_token: str | None, expect: int | None, *, quiet: bool
) -> None:
    """What to do on the other machines, on standard error: standard output is for results."""
    from minga.launch.listening import TOKEN_VARIABLE, join_command, reach

    command = join_command(address, port, tls=listening.tls is not None)
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    missing = expect - listening.here if expect else 0
    more = f" for {missing} more node{'s' * (missing > 1)}" if missing else ""
    console.print(f"listening on {address}:{port}{more}; on each of the other machines:", markup=False)
    if limit := reach(address):
        console.print(f"({limit})", markup=False)
    if new_token is None:
        console.print(f"  {command}     (with the same token, in {TOKEN_VARIABLE} or --token-file)", markup=False)
        return
    console.print(f"  {command} --token {new_token}", markup=False)
    if not quiet:
        console.print(
            f"or, to keep the token out of the list of processes:  {TOKEN_VARIABLE}=... {command}", markup=False
        )
