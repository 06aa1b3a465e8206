"""`minga train`: train a workload on some nodes with some strategy."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from minga.cli.execute import execute, print_summary
from minga.cli.listen import listening_from
from minga.cli.options import (
    BandwidthOption,
    BatchOption,
    CheckpointEveryOption,
    CheckpointsOption,
    CodecOption,
    CpuOption,
    DataOption,
    DelayOption,
    EpochsOption,
    HeartbeatOption,
    InterfaceOption,
    JsonOption,
    MinNodesOption,
    NodesOption,
    RunsOption,
    SeedOption,
    SetOption,
    StartFromOption,
    StepsOption,
    StrategyOption,
    TlsOption,
    TokenFileOption,
    TotalBatchOption,
    TransportOption,
    elastic_options,
    experiment_from,
)
from minga.errors import ConfigError

__all__ = ["register"]


def register(application: typer.Typer) -> None:
    application.command("train", no_args_is_help=True)(train)


def train(
    workload: Annotated[
        str | None,
        typer.Argument(help="A built-in workload (digits, mnist, ...), file.py:name, or an experiment.toml."),
    ] = None,
    nodes: NodesOption = None,
    strategy: StrategyOption = None,
    codec: CodecOption = None,
    epochs: EpochsOption = None,
    steps: StepsOption = None,
    batch: BatchOption = None,
    total_batch: TotalBatchOption = None,
    bandwidth: BandwidthOption = None,
    delay: DelayOption = None,
    cpu: CpuOption = None,
    seed: SeedOption = None,
    start_from: StartFromOption = None,
    data: DataOption = None,
    runs: RunsOption = None,
    checkpoint_every: CheckpointEveryOption = None,
    checkpoints: CheckpointsOption = None,
    resume: Annotated[
        Path | None, typer.Option("--resume", metavar="RUN", help="Go on with this run from its last checkpoint.")
    ] = None,
    transport: TransportOption = None,
    min_nodes: MinNodesOption = None,
    heartbeat_timeout: HeartbeatOption = None,
    listen: Annotated[
        str | None,
        typer.Option(
            "--listen", metavar="ADDRESS[:PORT]", help="Let other machines join (minga join), at this address."
        ),
    ] = None,
    expect: Annotated[
        int | None, typer.Option("--expect", metavar="N", help="With --listen: nodes in all; --nodes are those here.")
    ] = None,
    interface: InterfaceOption = None,
    tls: TlsOption = None,
    token_file: TokenFileOption = None,
    settings: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Train a workload on some nodes with some strategy.

    Examples:

      minga train digits --nodes 4 --strategy ring

      minga train digits --nodes 4 --bandwidth 10mbit --delay 5ms

      minga train my.py:workload --nodes 2 --strategy ps:mode=ssp,staleness=3 --epochs 5

      minga train experiment.toml --set training.seed=3 --json

      minga train digits --nodes 4 --strategy ring --heartbeat-timeout 3s

      minga train digits --listen 10.0.0.1:29600 --expect 4 --min-nodes 2

      minga train --resume runs/20260101-120000-digits-ring-4

      minga train digits --nodes 2 --start-from runs/20260101-120000-digits-ring-4
    """
    if resume is not None and workload is not None:
        raise ConfigError(f"--resume {resume} goes on with that run's own workload; leave {workload!r} out")
    if resume is not None and start_from is not None:
        raise ConfigError(f"--resume {resume} goes on with that run's own weights; leave --start-from {start_from} out")
    if resume is None and workload is None:
        raise ConfigError("say what to train: 'minga train digits', or 'minga train --resume RUN'")
    if resume is not None and not (resume / "experiment.toml").is_file():
        raise ConfigError(f"{resume} is no directory of a run: it has no experiment.toml")
    listening = listening_from(
        listen, interface=interface, expect=expect, here=nodes, tls=tls, token_file=token_file, quiet=as_json
    )
    experiment = experiment_from(
        str(resume / "experiment.toml") if resume is not None else str(workload),
        nodes=nodes if listening is None else expect,
        **elastic_options(transport, min_nodes, heartbeat_timeout),
        strategy=strategy,
        codec=codec,
        epochs=epochs,
        steps=steps,
        batch=batch,
        total_batch=total_batch,
        bandwidth=bandwidth,
        delay=delay,
        cpu=cpu,
        seed=seed,
        start_from=start_from,
        data=data,
        runs=runs,
        settings=settings,
        checkpoint_every=checkpoint_every,
        checkpoints=checkpoints,
    )
    summary = execute(experiment, quiet=as_json, resume=resume, listening=listening)
    if as_json:
        print(json.dumps(summary.to_dict()))
    else:
        print_summary(summary)
