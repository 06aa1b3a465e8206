"""The directory of a run: `experiment.toml`, `events/`, `logs/`, `checkpoints/`, `servers/`, `model.safetensors`."""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import re
import time
from collections.abc import Iterator
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor, nn

from minga.base.spec import describe
from minga.errors import ConfigError, RunError
from minga.measure.event_reader import SIMULATED
from minga.model.keras_parts import named_variables
from minga.runs.experiment import Experiment

__all__ = ["SIMULATED", "alone_in", "event_file", "log_file", "make_run_directory", "save_model", "server_folder"]


def make_run_directory(experiment: Experiment) -> Path:
    """A new directory for a run, with its description; two runs at the same time get two."""
    workload = Path(experiment.workload.partition(":")[0]).stem
    strategy = Path(describe(experiment.chosen_strategy).partition(":")[0]).stem
    readable = re.sub(r"[^\w-]+", "-", f"{workload}-{strategy}-{experiment.cluster.nodes}")
    moment = time.strftime("%Y%m%d-%H%M%S")
    for attempt in itertools.count():
        name = f"{moment}-{readable}" + (f"-{attempt}" if attempt else "")
        directory = Path(experiment.runs).expanduser().resolve() / name
        try:
            directory.mkdir(parents=True)
            break
        except FileExistsError:
            continue
        except OSError as error:
            raise ConfigError(f"runs: can't make {directory} ({error.strerror}); choose another directory") from None
    (directory / "events").mkdir()
    (directory / "logs").mkdir()
    (directory / "experiment.toml").write_text(experiment.to_toml(), encoding="utf-8")
    return directory


@contextlib.contextmanager
def alone_in(run: Path) -> Iterator[None]:
    """While the block lasts nobody else trains in this directory; the kernel ends that with the process."""
    try:
        lock = (run / "lock").open("w")
    except OSError as error:
        raise ConfigError(
            f"can't write in {run} ({error.strerror}), where events and checkpoints go; make it writable, or copy it "
            "elsewhere and go on there"
        ) from None
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise RunError(f"{run} is being trained by another process; end that first, or wait for it") from None
        yield


def event_file(run: Path, rank: int) -> Path:
    return run / "events" / f"rank-{rank}.jsonl"


def log_file(run: Path, rank: int) -> Path:
    return run / "logs" / f"rank-{rank}.log"


def server_folder(run: Path, server: int | None = None) -> Path:
    """Where a server keeps its shard while the run lasts; without a number, where all do."""
    return run / "servers" if server is None else run / "servers" / f"server-{server}"


def save_model(run: Path, model: nn.Module) -> None:
    """Weights and buffers as safetensors; copies, since the model's tensors are views into one vector.

    Those of a Keras model have the paths of its variables as names (`minga.keras.load` reads them).
    """
    tensors = {
        name: value.detach().cpu().contiguous().clone()
        for name, value in (named_variables(model) or model.state_dict()).items()
        if isinstance(value, Tensor)  # modules may add other things with get_extra_state
    }
    target, unfinished = run / "model.safetensors", run / "model.safetensors.unfinished"
    try:
        save_file(tensors, unfinished)
        unfinished.replace(target)
    except (OSError, SafetensorError) as error:
        with contextlib.suppress(OSError):
            unfinished.unlink(missing_ok=True)
        raise RunError(
            f"can't write {target}: {error}. Make room there; where there is a checkpoint, minga train --resume {run} "
            "goes on from it and writes the model at the end"
        ) from None
