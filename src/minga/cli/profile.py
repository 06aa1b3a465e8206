"""`minga profile`: measure what a workload costs on this machine."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from minga.cli.options import DataOption, JsonOption, WorkloadOnlyArgument
from minga.cli.output import check_writable, present, say
from minga.errors import ConfigError

if TYPE_CHECKING:
    from minga.simulate.profile import Profile

__all__ = ["measured_profile", "name_of", "profile"]


def profile(
    workload: WorkloadOnlyArgument,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="Default: WORKLOAD.profile.json, here.")] = None,
    batch: Annotated[
        list[int] | None, typer.Option("--batch", "-b", help="Samples in a step; repeatable. Default: three sizes.")
    ] = None,
    codec: Annotated[list[str] | None, typer.Option(metavar="SPEC", help="One more codec to time; repeatable.")] = None,
    processes: Annotated[
        int, typer.Option(metavar="N", help="Measure with so many at once, as will train on this machine.")
    ] = 1,
    pin: Annotated[bool, typer.Option("--pin", help="Keep each process on a core of its own, as in a lab.")] = False,
    threads: Annotated[int, typer.Option(help="Threads of a process.")] = 1,
    data: DataOption = None,
    as_json: JsonOption = False,
) -> None:
    """Measure forward, backward, update and codecs of a workload on this machine.

    The result is a small JSON file for `minga simulate` and `minga plan`, which can be copied and edited.

    Examples:

      minga profile digits

      minga profile my.py:workload --batch 16 --batch 64 --out laptop.json

      minga profile digits --codec top_k:ratio=0.001 --json
    """
    from minga.simulate.profile import save_profile

    for name, value in {"--processes": processes, "--threads": threads, "--batch": min(batch or [1])}.items():
        if value < 1:
            raise ConfigError(f"{name} should be at least 1, not {value}")
    path = out or Path(f"{name_of(workload)}.profile.json")
    check_writable(path)
    measured = measured_profile(
        workload, data=data, batches=batch or [], codecs=codec or [], processes=processes, pin=pin, threads=threads
    )
    save_profile(measured, path)
    present(dataclasses.asdict(measured), lambda: _print(measured, path), as_json=as_json)


def name_of(workload: str) -> str:
    """A workload's name as a part of a file's."""
    path, _, name = workload.partition(":")
    return f"{Path(path).stem}-{name}" if name else Path(path).stem


def measured_profile(
    workload: str,
    *,
    data: str | None,
    batches: list[int],
    codecs: list[str],
    processes: int = 1,
    pin: bool = False,
    threads: int = 1,
) -> Profile:
    """Measure, with a bar on standard error."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    from minga.codecs import Codec
    from minga.simulate.profiling import USUAL_CODECS, measure_profile

    chosen = [*USUAL_CODECS, *(Codec.from_value(each) for each in codecs)]
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(f"{workload}: profile", total=1.0)
        return measure_profile(
            workload,
            data=data,
            batches=batches,
            codecs=chosen,
            processes=processes,
            pin=pin,
            threads=threads,
            progress=lambda what, part: bar.update(task, completed=part, description=f"{workload}: {what}"),
        )


def _print(profile: Profile, path: Path) -> None:
    size = f"{profile.parameters:,} parameters in {len(profile.layers)} layers, {profile.nbytes / 1e6:,.2f} MB"
    say(f"[bold]{profile.workload}[/]: {size}")
    steps = Table("batch", "data", "forward", "backward", "update", "other", "a step", "samples/s", "MB", box=None)
    for compute in profile.compute:
        seconds = compute.seconds + profile.update_seconds
        parts = (compute.data, compute.forward, compute.backward, profile.update_seconds, compute.other, seconds)
        cells = [f"{1000 * part:,.2f}" for part in parts]
        memory = f"{compute.memory_bytes / 1e6:,.0f}"
        steps.add_row(str(compute.batch), *cells, f"{compute.batch / seconds:,.0f}", memory)
    say("milliseconds of a step, by samples in it:")
    console = Console()
    console.print(steps)
    console.print()
    last = profile.compute[-1].seconds + profile.update_seconds
    speeds = Table("codec", "encode, ms", "decode, ms", "of a step", "GB/s", box=None)
    for name, cost in profile.codecs.items():
        both = cost.encode + cost.decode
        speed = f"{profile.nbytes / both / 1e9:,.2f}" if both else "-"
        times = [f"{1000 * seconds:,.2f}" for seconds in (cost.encode, cost.decode)]
        speeds.add_row(name, *times, f"{both / last:.1%}", speed)
    console.print(speeds)
    say(f"on {profile.device}; kept in {path}")
