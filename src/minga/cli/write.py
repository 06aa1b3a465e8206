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
    run: Annotated[Path, typer.Argument(help="A run of shakespeare-gpt, or of any workload that writes text.")],
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
    from minga.runs.answering import answer_takes
    from minga.training.trained import load_trained

    if characters < 1:
        raise ConfigError(f"--characters should be at least 1, not {characters}")
    if not -(2**63) <= seed < 2**63:
        raise ConfigError(f"--seed should fit into 64 bits, not {seed}")
    if not 0 <= temperature <= 10:
        raise ConfigError(f"--temperature should be 0 to 10, not {temperature:g}")
    trained = load_trained(run, data=data)
    options = {"characters": characters, "temperature": temperature, "seed": seed}
    text = None
    if trained.workload.answer is not None and answer_takes(trained.workload, *options):
        text = trained.workload.respond(trained.model, prompt, **options)
    if not isinstance(text, str):
        raise ConfigError(f"{run} trained {trained.experiment.workload}, which writes no text; give another run")
    present({"run": str(run), "prompt": prompt, "text": text}, lambda: print(text), as_json=as_json)
