"""Tasks that are not classification, on data that needs no download: regression, labels, autoencoding, language.

    minga train friedman --nodes 2
    minga train digits-autoencoder --nodes 2 --strategy ring

They show what a workload of each kind looks like, and that metrics are right on several nodes.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Adam

from minga.data.formats.text import as_numbers, pieces
from minga.metrics import F1, R2, AreaUnderROC, MeanSquaredError, Perplexity, RootMeanSquaredError, WordAccuracy
from minga.runs.answering import Preparation, ink_is_bright
from minga.runs.workload import Workload
from minga.workloads.digits import every_fifth, load_digits
from minga.workloads.models import DigitsNet, SmallTransformer
from minga.workloads.schedules import warm_up_and_fall
from minga.workloads.text import mean_entropy, writing

__all__ = ["LABELS", "counting", "digits_autoencoder", "digits_labels", "friedman", "number_in_words"]

LABELS = {
    "even": (0, 2, 4, 6, 8),
    "prime": (2, 3, 5, 7),
    "above four": (5, 6, 7, 8, 9),
    "with a loop": (0, 6, 8, 9),
    "of straight lines": (1, 4, 7),
}
"""What is told of a digit, and the digits that it is true of."""

_ONES = (
    *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"),
    *("ten", "eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"),
)
_TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
_CONTEXT = 32


# --- regression: a number for each sample -----------------------------------------------------------------------


def friedman(data: Path | None = None) -> Workload:
    """Regression: Friedman's first function (1991) of ten numbers, of which five count.

    It has a sine of a product, a square, and noise.
    The noise has variance 1, so no model gets below an RMSE of 1, nor above an R2 of about 0.96.
    """
    generator = torch.Generator().manual_seed(1991)
    inputs = torch.rand(5000, 10, generator=generator)
    first, second, third, fourth, fifth = inputs[:, :5].unbind(dim=1)
    clean = 10 * torch.sin(torch.pi * first * second) + 20 * (third - 0.5) ** 2 + 10 * fourth + 5 * fifth
    targets = clean + torch.randn(5000, generator=generator)
    train, test = every_fifth(inputs, targets.unsqueeze(1))
    return Workload(
        name="friedman",
        model=lambda: nn.Sequential(nn.Linear(10, 64), nn.GELU(), nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 1)),
        train=train,
        test=test,
        loss=nn.functional.mse_loss,
        metrics={"R2": R2(), "RMSE": RootMeanSquaredError()},
        optimizer=partial(Adam, lr=0.005),
        schedule=warm_up_and_fall,
        batch=32,
        epochs=20,
    )


# --- several labels for each sample -----------------------------------------------------------------------------


class LabelsNet(DigitsNet):
    """The network of `digits`, with an output for each label."""

    def __init__(self) -> None:
        super().__init__()
        self[-1] = nn.Linear(26, len(LABELS))


def digits_labels(data: Path | None = None) -> Workload:
    """Several labels: what is true of a handwritten digit, even, prime, above four, with a loop, of straight lines."""
    pictures, classes = load_digits()
    truth = torch.stack([torch.isin(classes, torch.tensor(digits)) for digits in LABELS.values()], dim=1)
    train, test = every_fifth(pictures, truth.float())
    return Workload(
        name="digits-labels",
        model=LabelsNet,
        train=train,
        test=test,
        loss=nn.functional.binary_cross_entropy_with_logits,
        metrics={"F1": F1(average="macro"), "F1 micro": F1(average="micro"), "ROC AUC": AreaUnderROC()},
        optimizer=partial(Adam, lr=0.003),
        schedule=warm_up_and_fall,
        batch=16,
        epochs=15,
        prepare=Preparation(picture=ink_is_bright),
        classes=tuple(LABELS),
    )


# --- autoencoding: without any targets --------------------------------------------------------------------------


class Autoencoder(nn.Sequential):
    """Pictures of 8x8 through 8 numbers and back: 18,760 parameters."""

    def __init__(self) -> None:
        super().__init__(
            nn.Flatten(),
            nn.Linear(64, 128),
            nn.ReLU(),
            nn.Linear(128, 8),
            nn.Linear(8, 128),
            nn.ReLU(),
            nn.Linear(128, 64),
            nn.Sigmoid(),
            nn.Unflatten(1, (1, 8, 8)),
        )


def _itself(model: nn.Module, batch: Any) -> tuple[Tensor, Tensor]:
    """What should come out is what went in."""
    (pictures,) = batch
    return model(pictures), pictures


def digits_autoencoder(data: Path | None = None) -> Workload:
    """Autoencoding: handwritten digits squeezed into 8 numbers, without their classes."""
    pictures, _ = load_digits()
    train, test = every_fifth(pictures)
    return Workload(
        name="digits-autoencoder",
        model=Autoencoder,
        train=train,
        test=test,
        predict=_itself,
        loss=nn.functional.mse_loss,
        metrics={"MSE": MeanSquaredError()},
        optimizer=partial(Adam, lr=0.003),
        schedule=warm_up_and_fall,
        batch=16,
        epochs=30,
        prepare=Preparation(picture=ink_is_bright),
    )


# --- language modelling -----------------------------------------------------------------------------------------


def number_in_words(number: int) -> str:
    """Of 0 to 999,999: `four hundred and five`."""
    if number >= 1000:
        thousands, rest = divmod(number, 1000)
        link = "" if not rest else " and " if rest < 100 else " "
        return f"{number_in_words(thousands)} thousand{link}{number_in_words(rest) if rest else ''}"
    if number >= 100:
        hundreds, rest = divmod(number, 100)
        return f"{_ONES[hundreds]} hundred" + (f" and {number_in_words(rest)}" if rest else "")
    if number >= 20:
        tens, rest = divmod(number, 10)
        return _TENS[tens - 2] + (f"-{_ONES[rest]}" if rest else "")
    return _ONES[number]


def counting(data: Path | None = None) -> Workload:
    """Language modelling: learns to count in words, a character at a time."""
    numbers, characters = as_numbers(", ".join(map(number_in_words, range(2000))))
    train, test = every_fifth(*map(torch.from_numpy, pieces(numbers, _CONTEXT)))
    return Workload(
        name="counting",
        model=partial(SmallTransformer, len(characters), context=_CONTEXT, width=32, layers=2, heads=2),
        train=train,
        test=test,
        loss=mean_entropy,
        metrics={"perplexity": Perplexity(), "accuracy": WordAccuracy()},
        optimizer=partial(Adam, lr=0.005),
        schedule=warm_up_and_fall,
        batch=32,
        epochs=10,
        **writing(characters),
    )
