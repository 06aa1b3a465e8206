"""A language model that tells the next character, on the plays of Shakespeare: `minga train shakespeare --data DIR`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.utils.data import TensorDataset

from minga.data.directory import dataset_directory
from minga.data.formats.text import as_numbers, pieces
from minga.data.packed import plain_text
from minga.errors import ConfigError, DataError
from minga.metrics import Perplexity, WordAccuracy
from minga.runs.workload import AnyMetric, Workload
from minga.workloads.models import SmallTransformer
from minga.workloads.schedules import warm_up_and_fall

__all__ = ["continued", "mean_entropy", "shakespeare", "shakespeare_characters", "shakespeare_gpt", "writing"]

_FILE = "tinyshakespeare.txt"
_TRAINED_PART = 0.9
_FROZEN = 1e-6  # below it nothing but the likeliest is ever drawn, and scores divided by it may be infinite


def mean_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    """The mean over all characters: since pieces are equally long, also the mean over samples."""
    return cross_entropy(outputs.flatten(0, 1), targets.flatten())


def _part_correct(outputs: Tensor, targets: Tensor) -> Tensor:
    """For each piece, the part of its characters that was told right."""
    return (outputs.argmax(dim=-1) == targets).double().mean(dim=1)


def _path(data: Path | None) -> Path:
    return dataset_directory("text", data, needs=[_FILE]) / _FILE


def shakespeare_characters(data: Path | None) -> list[str]:
    """What the numbers that these models tell stand for."""
    return as_numbers(plain_text(_path(data)))[1]


def continued(
    model: SmallTransformer, prompt: Tensor, *, characters: int = 400, temperature: float = 0.8, seed: int = 0
) -> Tensor:
    """The prompt and what the model writes after it, a character at a time, as numbers."""
    numbers = prompt.unsqueeze(0)
    generator = torch.Generator(numbers.device).manual_seed(seed)
    with torch.no_grad():
        for _ in range(characters):
            scores = model(numbers[:, -model.context :])[:, -1]
            if temperature < _FROZEN:
                chosen = scores.argmax(dim=1, keepdim=True)
            else:
                chosen = torch.multinomial((scores / temperature).softmax(dim=1), 1, generator=generator)
            numbers = torch.cat([numbers, chosen], dim=1)
    return numbers[0]


def writing(known: Sequence[str]) -> dict[str, Any]:
    """What a workload needs to write: how prompts are read, continued and shown; `known`: characters by number."""
    number_of = {character: number for number, character in enumerate(known)}

    def prepare(prompt: Any) -> Tensor:
        if not isinstance(prompt, str):
            raise DataError(f"a prompt is a text, not a {type(prompt).__name__}; give what the text begins with")
        strange = sorted(set(prompt) - number_of.keys())
        if strange or not prompt:
            raise ConfigError(
                f"a prompt is of characters that the model knows, at least one; not {strange or prompt!r}"
            )
        return torch.tensor([number_of[character] for character in prompt])

    def present(numbers: Tensor) -> str:
        return "".join(known[number] for number in numbers.tolist())

    return {"prepare": prepare, "answer": continued, "present": present}


def _workload(
    name: str,
    data: Path | None,
    *,
    context: int,
    rate: float,
    epochs: int,
    metrics: Mapping[str, AnyMetric],
    **sizes: Any,
) -> Workload:
    """Of the first nine tenths of the text, tested on the last; `sizes` of the transformer."""
    path = _path(data)
    numbers, characters = as_numbers(plain_text(path))
    cut = int(_TRAINED_PART * len(numbers))
    train, test = pieces(numbers[:cut], context), pieces(numbers[cut:], context)
    if not len(test[0]):
        raise DataError(
            f"{path} has {len(numbers):,} characters, of which the last tenth does not fill a piece of {context}; "
            "fetch the file again"
        )
    return Workload(
        name=name,
        model=partial(SmallTransformer, len(characters), context=context, **sizes),
        train=TensorDataset(*map(torch.from_numpy, train)),
        test=TensorDataset(*map(torch.from_numpy, test)),
        loss=mean_entropy,
        metrics=metrics,
        optimizer=partial(torch.optim.AdamW, lr=rate, betas=(0.9, 0.99), weight_decay=0.1),
        schedule=warm_up_and_fall,
        batch=32,
        epochs=epochs,
        **writing(characters),
    )


def shakespeare_gpt(data: Path | None = None) -> Workload:
    """The modern case: a transformer of 3.2 million parameters with dropout, which tells the next character.

    It looks at twice as many characters as `shakespeare` does.
    3,225,665 parameters for 65 characters. What it has learned writes: `minga write RUN`.
    """
    return _workload(
        "shakespeare-gpt",
        data,
        context=128,
        rate=0.001,
        epochs=15,
        metrics={"perplexity": Perplexity(), "accuracy": WordAccuracy()},
        width=256,
        layers=4,
        heads=8,
        dropout=0.2,
    )


def shakespeare(data: Path | None = None) -> Workload:
    """A small transformer that tells the next character.

    Trained on the first nine tenths of the text, tested on the last.
    """
    metrics: dict[str, AnyMetric] = {"accuracy": _part_correct, "perplexity": Perplexity()}
    return _workload("shakespeare", data, context=64, rate=0.003, epochs=3, metrics=metrics)
