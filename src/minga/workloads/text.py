"""A language model that tells the next character, on the plays of Shakespeare: `minga train shakespeare --data DIR`."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.optim import Optimizer
from torch.utils.data import TensorDataset

from minga.data.directory import dataset_directory
from minga.data.formats.text import as_numbers, pieces
from minga.data.packed import plain_text
from minga.errors import ConfigError, DataError
from minga.metrics import Perplexity, WordAccuracy
from minga.runs.workload import Workload
from minga.workloads.models import SmallTransformer
from minga.workloads.schedules import warm_up_and_fall

__all__ = ["continued", "shakespeare", "shakespeare_characters", "shakespeare_gpt"]

_FILE = "tinyshakespeare.txt"
_CONTEXT = 64
_LONG_CONTEXT = 128
_TRAINED_PART = 0.9
_FROZEN = 1e-6  # below it nothing but the likeliest is ever drawn, and scores divided by it may be infinite


def _adamw(parameters: Iterable[nn.Parameter], rate: float = 0.003) -> Optimizer:
    return torch.optim.AdamW(parameters, lr=rate, betas=(0.9, 0.99), weight_decay=0.1)


def _loss(outputs: Tensor, targets: Tensor) -> Tensor:
    """The mean over all characters: since pieces are equally long, also the mean over samples."""
    return cross_entropy(outputs.flatten(0, 1), targets.flatten())


def _part_correct(outputs: Tensor, targets: Tensor) -> Tensor:
    """For each piece, the part of its characters that was told right."""
    return (outputs.argmax(dim=-1) == targets).double().mean(dim=1)


def shakespeare_characters(data: Path | None) -> list[str]:
    """What the numbers that these models tell stand for."""
    return as_numbers(plain_text(_path(data)))[1]


def continued(
    model: SmallTransformer, known: list[str], prompt: str, *, characters: int, temperature: float, seed: int
) -> str:
    """The prompt and what the model writes after it, a character at a time."""
    number_of = {character: number for number, character in enumerate(known)}
    strange = sorted(set(prompt) - number_of.keys())
    if strange or not prompt:
        raise ConfigError(f"a prompt is of characters that the model knows, at least one; not {strange or prompt!r}")
    numbers = torch.tensor([[number_of[character] for character in prompt]])
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for _ in range(characters):
            scores = model(numbers[:, -model.context :])[:, -1]
            if temperature < _FROZEN:
                chosen = scores.argmax(dim=1, keepdim=True)
            else:
                chosen = torch.multinomial((scores / temperature).softmax(dim=1), 1, generator=generator)
            numbers = torch.cat([numbers, chosen], dim=1)
    return "".join(known[number] for number in numbers[0].tolist())


def _path(data: Path | None) -> Path:
    return dataset_directory("text", data, needs=[_FILE]) / _FILE


def _pieces(data: Path | None, context: int) -> tuple[TensorDataset, TensorDataset, list[str]]:
    """The first nine tenths of the text, the last, and its characters."""
    path = _path(data)
    numbers, characters = as_numbers(plain_text(path))
    cut = int(_TRAINED_PART * len(numbers))
    train, test = pieces(numbers[:cut], context), pieces(numbers[cut:], context)
    if not len(test[0]):
        raise DataError(
            f"{path} has {len(numbers):,} characters, of which the last tenth does not fill a piece of {context}; "
            "fetch the file again"
        )
    return TensorDataset(*map(torch.from_numpy, train)), TensorDataset(*map(torch.from_numpy, test)), characters


def shakespeare_gpt(data: Path | None = None) -> Workload:
    """The modern case: a transformer of 3.2 million parameters with dropout, which tells the next character.

    It looks at twice as many characters as `shakespeare` does.
    3,225,665 parameters for 65 characters. What it has learned writes: `minga write RUN`.
    """
    train, test, characters = _pieces(data, _LONG_CONTEXT)
    return Workload(
        name="shakespeare-gpt",
        model=partial(
            SmallTransformer, len(characters), context=_LONG_CONTEXT, width=256, layers=4, heads=8, dropout=0.2
        ),
        train=train,
        test=test,
        loss=_loss,
        metrics={"perplexity": Perplexity(), "accuracy": WordAccuracy()},
        optimizer=partial(_adamw, rate=0.001),
        schedule=warm_up_and_fall,
        batch=32,
        epochs=15,
    )


def shakespeare(data: Path | None = None) -> Workload:
    """A small transformer that tells the next character.

    Trained on the first nine tenths of the text, tested on the last.
    """
    train, test, characters = _pieces(data, _CONTEXT)
    return Workload(
        name="shakespeare",
        model=partial(SmallTransformer, len(characters), context=_CONTEXT),
        train=train,
        test=test,
        loss=_loss,
        metrics={"accuracy": _part_correct, "perplexity": Perplexity()},
        optimizer=_adamw,
        schedule=warm_up_and_fall,
        batch=32,
        epochs=3,
    )
