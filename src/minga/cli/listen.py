"""`--listen` of `minga train` and `minga probe`: other machines may join, and people are shown how."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from minga.cli.option_groups import options_of
from minga.cli.output import say
from minga.errors import ConfigError

if TYPE_CHECKING:
    from minga.launch.listening import Listening

__all__ = ["InterfaceOption", "Listen", "ListenOptions", "TlsOption", "TokenFileOption"]

InterfaceOption = Annotated[str | None, typer.Option(metavar="NAME", help="Network interface to use, such as eth0.")]
TlsOption = Annotated[
    str | None, typer.Option(metavar="DIR", help="Encrypt everything; this node's directory as made by minga cert.")
]
TokenFileOption = Annotated[
    Path | None, typer.Option(metavar="FILE", help="File with the run's token; or MINGA_TOKEN.")
]


@dataclass(frozen=True, kw_only=True)
class Listen:
    """What is said of nodes on other machines."""

    listen: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS[:PORT]", help="Let other machines join (minga join), at this address."),
    ] = None
    expect: Annotated[
        int | None, typer.Option(metavar="N", help="With --listen: nodes in all; --nodes are those here.")
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
            new_token = listening.token if token is None else None
            say(
                self._how_to_join(address, port, new_token, quiet=quiet, here=listening.here), markup=False, stderr=True
            )

        listening = Listening(
            self.listen,
            interface=self.interface,
            here=here or 1,
            tls=self.tls,
            token=token,
            when_listening=when_listening,
        )
        return listening

    def _how_to_join(self, address: str, port: int, new_token: str | None, *, quiet: bool, here: int) -> str:
        """What to do on the other machines; `new_token`: one that they can't know yet."""
        from minga.launch.listening import TOKEN_VARIABLE, join_command, reach

        command = join_command(address, port, tls=self.tls is not None)
        missing = self.expect - here if self.expect else 0
        more = f" for {missing} more node{'s' * (missing > 1)}" if missing else ""
        lines = [f"listening on {address}:{port}{more}; on each of the other machines:"]
        if limit := reach(address):
            lines.append(f"({limit})")
        if new_token is None:
            lines.append(f"  {command}     (with the same token, in {TOKEN_VARIABLE} or --token-file)")
        else:
            lines.append(f"  {command} --token {new_token}")
            if not quiet:
                lines.append(f"or, to keep the token out of the list of processes:  {TOKEN_VARIABLE}=... {command}")
        return "\n".join(lines)


ListenOptions = Annotated[Listen, options_of(Listen, panel="Other machines")]
