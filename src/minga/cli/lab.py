"""`minga lab`: hosts with shaped links on this machine, to look around in."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from minga.cli.options import JsonOption, link_options
from minga.cli.output import present, say
from minga.errors import ConfigError

if TYPE_CHECKING:
    from minga.lab import Lab, Measured
    from minga.lab.registry import Record

__all__ = ["change", "clean", "cut", "list_labs", "measure", "mend", "shell", "up"]

HostsOption = Annotated[int, typer.Option("--hosts", "-n", min=1, max=200, help="How many hosts.")]
LinkFields = Annotated[dict[str, str], link_options()]
CpuOption = Annotated[str, typer.Option(metavar="CORES", help="Cores' worth of time of each host: 0.5 or 1,0.5.")]
LabOption = Annotated[
    str | None, typer.Option(metavar="NAME", help="Which running lab; default: the one of minga lab up.")
]


def measure(link: LinkFields, hosts: HostsOption = 2, as_json: JsonOption = False) -> None:
    """Make a lab, measure its links, remove it: what was asked and what this machine makes of it.

    Exit code 1 if a rate is more than 5 % or a delay more than 2 ms (or 10 %) off.

    Example:

      minga lab measure --hosts 4 --bandwidth 100mbit --delay 20ms
    """
    with _lab(hosts, link) as lab:
        measured = lab.measure()
    present(measured.to_dict(), lambda: _print(measured), as_json=as_json)
    if measured.off:
        raise typer.Exit(1)


def up(link: LinkFields, hosts: HostsOption = 2, cpu: CpuOption = "", as_json: JsonOption = False) -> None:
    """Make a lab and keep it until Ctrl-C; `minga lab shell h1` in another terminal goes in.

    Example:

      minga lab up --hosts 4 --bandwidth 10mbit --delay 5ms
    """
    from minga.lab import registry

    with _lab(hosts, link, cpu, purpose=registry.FOR_PEOPLE) as lab:
        measured = lab.measure()
        present(
            {"lab": lab.name, "hosts": lab.hosts, "measured": measured.to_dict()},
            lambda: _print(measured, f"{lab.name} is up; minga lab shell h1 goes in, Ctrl-C removes it"),
            as_json=as_json,
        )
        while True:
            time.sleep(60)


def shell(
    host: Annotated[str, typer.Argument(help="h1, h2, ...")],
    link: Annotated[dict[str, str], link_options("bandwidth", "delay")],
    command: Annotated[list[str] | None, typer.Argument(help="Instead of a shell; behind --.")] = None,
    lab: LabOption = None,
    hosts: Annotated[int | None, typer.Option("--hosts", "-n", min=1, max=200, help="How many; default: 2.")] = None,
    cpu: CpuOption = "",
) -> None:
    """Open a shell (or run a command) on a host: of a running lab, or of a new one that lasts as long as the shell.

    The options describe the new lab; with one of them, a new one is made in any case. Exit code: the shell's.

    Example:

      minga lab shell h1 --bandwidth 10mbit --delay 5ms -- ip address
    """
    from minga.lab import registry
    from minga.lab.namespaces import enter

    words = command or [os.environ.get("SHELL", "/bin/sh")]
    environment = {**os.environ, "MINGA_HOST": host, "PS1": rf"{host}:\w\$ "}
    described = hosts is not None or bool(link) or bool(cpu)
    there = lab is not None or any(record.purpose == registry.FOR_PEOPLE for record in _running())
    if there and not described:
        place = _host(_find(lab), host)
        raise typer.Exit(_run(words, environment, lambda: enter(place)))
    with _lab(hosts or 2, link, cpu) as made:
        entering = made.entering(host)
        if not command:
            say(f"a new lab, for as long as this shell: {_addresses(made.hosts)}", stderr=True)
        code = _run(words, environment, entering)
    raise typer.Exit(code)


def change(
    host: Annotated[str, typer.Argument(help="h1, h2, ...")],
    link: LinkFields,
    lab: LabOption = None,
    as_json: JsonOption = False,
) -> None:
    """Change the link of a host in a running lab, also while a run uses it. What is not given stays as it is.

    Example:

      minga lab change h1 --bandwidth 1mbit
    """
    from minga.base.config import build
    from minga.lab.laboratory import adjust_link
    from minga.runs.network import LinkOverride

    running = _find(lab)
    _host(running, host)
    if not link:
        raise ConfigError("nothing to change; give --bandwidth, --up, --down, --delay, --jitter or --loss")
    adjust_link(running, host, build(LinkOverride, link))
    changed = {"lab": running.name, "host": host, "changed": True}
    present(changed, f"{running.name}: the link of {host} is changed", as_json=as_json)


def cut(
    hosts: Annotated[list[str], typer.Argument(help="h1, h2, ...: together they keep each other.")],
    lab: LabOption = None,
    loud: Annotated[bool, typer.Option("--loud", help="Pull out the cables: the hosts' kernels notice.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Cut hosts of a running lab off from the rest: packets get lost, and nobody is notified.

    Example:

      minga lab cut h3 h4
    """
    from minga.lab.laboratory import cut_hosts

    running = _find(lab)
    cut_hosts(running, hosts, loud=loud)
    _print_changed(running, hosts, "cut off", as_json=as_json)


def mend(
    hosts: Annotated[list[str], typer.Argument(help="h1, h2, ...")],
    lab: LabOption = None,
    as_json: JsonOption = False,
) -> None:
    """Join hosts again that were cut off.

    Example:

      minga lab mend h3 h4
    """
    from minga.lab.laboratory import mend_hosts

    running = _find(lab)
    mend_hosts(running, hosts)
    _print_changed(running, hosts, "joined again", as_json=as_json)


def _print_changed(running: Record, hosts: list[str], what: str, *, as_json: bool) -> None:
    changed = {"lab": running.name, "hosts": hosts, "changed": True}
    present(changed, f"{running.name}: {', '.join(hosts)} {what}", as_json=as_json)


def list_labs(as_json: JsonOption = False) -> None:
    """List the labs that run, with their hosts.

    Example:

      minga lab list --json
    """
    running = _running()
    listed = [{"lab": each.name, "owner": each.owner, "purpose": each.purpose, "hosts": each.hosts} for each in running]
    lines = [
        f"[bold]{each.name}[/] ({each.purpose}, process {each.owner}): {_addresses(each.hosts)}" for each in running
    ]
    present(listed, "\n".join(lines) or "no lab is running", as_json=as_json)


def clean(
    everything: Annotated[bool, typer.Option("--all", help="Also end labs that are in use.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Remove what labs have left behind whose processes were killed. Labs that are in use stay.

    Example:

      minga lab clean
    """
    from minga.lab import registry

    ended = registry.end_all() if everything else []
    removed = [*ended, *registry.leftovers()]
    for name in removed:
        registry.clean(name)
    people = f"removed: {', '.join(removed)}" if removed else "nothing was left behind"
    present({"removed": removed}, people, as_json=as_json)


def _lab(hosts: int, link: dict[str, str], cpu: str = "", purpose: str = "") -> Lab:
    from minga.base.config import build
    from minga.lab import Lab
    from minga.runs.experiment import Cluster
    from minga.runs.network import Network

    shares = build(Cluster, {"cpu": cpu}).cpu if cpu else ()
    return Lab(build(Network, link), hosts, cpu=shares, purpose=purpose)


def _running() -> list[Record]:
    from minga.lab import registry

    return [record for record in registry.records() if record.alive]


def _find(name: str | None) -> Record:
    from minga.lab import registry

    running = _running()
    if name is not None:
        chosen = [record for record in running if record.name == name]
        if not chosen:
            there = ", ".join(record.name for record in running) or "none"
            raise ConfigError(f"no lab {name!r} is running; running: {there}")
        return chosen[0]
    if not running:
        raise ConfigError("no lab is running; minga lab up makes one")
    for_people = [record for record in running if record.purpose == registry.FOR_PEOPLE]
    if len(for_people) == 1:
        return for_people[0]
    # Somebody's run, or one of several: no guessing.
    there = ", ".join(f"{record.name} ({record.purpose or 'no purpose given'})" for record in running)
    raise ConfigError(f"say which lab is meant with --lab; running: {there}")


def _addresses(hosts: Mapping[str, Mapping[str, Any]]) -> str:
    return ", ".join(f"{name} {place['address']}" for name, place in hosts.items())


def _host(record: Record, host: str) -> dict[str, Any]:
    if host not in record.hosts:
        raise ConfigError(f"{record.name} has no host {host!r}; it has {', '.join(record.hosts)}")
    return record.hosts[host]


def _run(words: list[str], environment: dict[str, str], entering: Any) -> int:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for what runs on the host
    try:
        with subprocess.Popen(words, env=environment, preexec_fn=lambda: _begin(entering, before)) as process:
            code = process.wait()
    except FileNotFoundError:
        raise ConfigError(f"there is no command {words[0]!r}") from None
    except (OSError, subprocess.SubprocessError) as error:
        raise ConfigError(f"can't run {words[0]!r}: {error}") from None
    finally:
        signal.signal(signal.SIGINT, before)
    return code if code >= 0 else 128 - code


def _begin(entering: Any, interrupt: Any) -> None:
    """In the child."""
    signal.signal(signal.SIGINT, interrupt)
    entering()


def _print(measured: Measured, more: str | None = None) -> None:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("link")
    for name in ("up asked", "measured", "down asked", "measured", "delay asked", "measured"):
        table.add_column(name, justify="right")
    for link in measured.links:
        cells = [
            _in_units(link[f"{what}_{which}"], unit)
            for what, unit in (("up", 1e6), ("down", 1e6), ("delay", 1e-3))
            for which in ("asked", "measured")
        ]
        table.add_row(link["host"], *cells)
    Console().print(table)
    say("Rates are TCP payload in Mbit/s; delays are one way, in ms.", style="dim")
    for words in measured.off:
        say(f"off: {words}", style="yellow")
    if more is not None:
        say(more)


def _in_units(value: float | None, unit: float) -> str:
    return "-" if value is None else f"{value / unit:,.2f}"
