"""`minga write`: text from a language model that a run has trained."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from minga.cli.options import DataOption, JsonOption
from minga.cli.output import present
from minga.errors import ConfigError

__all__ = ["write"]


def write(
    run: Annotated[Path, typer.Argument(help="The directory of a run of shakespeare-gpt or shakespeare.")],
    prompt: Annotated[str, typer.Option(help="What the text begins with.")] = "\n",
    characters: Annotated[int, typer.Option(help="How many are written.")] = 400,
    temperature: Annotated[float, typer.Option(help="0: always the likeliest; 1: as learned.")] = 0.8,
    seed: Annotated[int, typer.Option(help="Decides what is drawn.")] = 0,
    data: DataOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write text with a language model that `minga train shakespeare-gpt` has trained.

    Example:

      minga write runs/RUN --prompt "ROMEO:" --characters 300
    """
    from minga.training.trained import load_trained
    from minga.workloads.models import SmallTransformer
    from minga.workloads.text import continued, shakespeare_characters

    if characters < 1:
        raise ConfigError(f"--characters should be at least 1, not {characters}")
    if not -(2**63) <= seed < 2**63:
        raise ConfigError(f"--seed should fit into 64 bits, not {seed}")
    if not 0 <= temperature <= 10:
        raise ConfigError(f"--temperature should be 0 to 10, not {temperature:g}")
    trained = load_trained(run, data=data)
    where = data if data is not None else trained.experiment.data
    if not isinstance(trained.model, SmallTransformer) or not trained.workload.name.startswith("shakespeare"):
        raise ConfigError(f"{run} trained {trained.experiment.workload}, which writes no text; give another run")
    known = shakespeare_characters(Path(where).expanduser() if where else None)
    text = continued(trained.model, known, prompt, characters=characters, temperature=temperature, seed=seed)
    present({"run": str(run), "prompt": prompt, "text": text}, lambda: print(text), as_json=as_json)
