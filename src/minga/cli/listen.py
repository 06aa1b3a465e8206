"""`--listen` of `minga train` and `minga probe`: other machines may join, and people are shown how."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from minga.cli.option_groups import options_of
from minga.errors import ConfigError

if TYPE_CHECKING:
    from minga.launch.listening import Listening

__all__ = ["InterfaceOption", "Listen", "ListenOptions", "TlsOption", "TokenFileOption"]

InterfaceOption = Annotated[
    str | None, typer.Option("--interface", metavar="NAME", help="Network interface to use, such as eth0.")
]
TlsOption = Annotated[
    str | None,
    typer.Option("--tls", metavar="DIR", help="Encrypt everything; this node's directory as made by minga cert."),
]
TokenFileOption = Annotated[
    Path | None, typer.Option("--token-file", metavar="FILE", help="File with the run's token; or MINGA_TOKEN.")
]


@dataclass(frozen=True, kw_only=True)
class Listen:
    """What is said of nodes on other machines."""

    listen: Annotated[
        str | None,
        typer.Option(
            "--listen", metavar="ADDRESS[:PORT]", help="Let other machines join (minga join), at this address."
        ),
    ] = None
    expect: Annotated[
        int | None, typer.Option("--expect", metavar="N", help="With --listen: nodes in all; --nodes are those here.")
    ] = None
    interface: InterfaceOption = None
    tls: TlsOption = None
    token_file: TokenFileOption = None

    def start(self, *, here: int | None, quiet: bool) -> Listening | None:
        """None where nobody else is to join; `here`: nodes of this machine."""
        if self.listen is None and self.interface is None:
            for name, value in vars(self).items():
                if value is not None:
                    flag = name.replace("_", "-")
                    raise ConfigError(f"--{flag} is for runs with other machines; give --listen ADDRESS[:PORT] too")
            return None
        from minga.launch.listening import Listening, find_token

        token = find_token(None, self.token_file)

        def when_listening(address: str, port: int) -> None:
            new_token = None if token is not None else listening.token
            _print_how_to_join(address, port, listening, new_token, self.expect, quiet=quiet)

        listening = Listening(
            self.listen,
            interface=self.interface,
            here=here or 1,
            tls=self.tls,
            token=token,
            when_listening=when_listening,
        )
        return listening


ListenOptions = Annotated[Listen, options_of(Listen, panel="Other machines")]


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
