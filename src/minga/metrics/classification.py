"""Metrics of classes and labels: top-k accuracy, F1, confusion matrix. A class of -100 does not count."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from minga.errors import WorkloadError
from minga.metrics.metric import IGNORED, Mean, Metric

__all__ = ["F1", "ConfusionMatrix", "TopKAccuracy"]


@dataclass(frozen=True, kw_only=True)
class TopKAccuracy(Mean):
    """The part of samples whose class is among the k largest outputs."""

    k: int = 5
    """How many may be guessed."""

    def __post_init__(self) -> None:
        if self.k < 1:
            raise WorkloadError(f"TopKAccuracy: k should be at least 1, not {self.k}")

    def sum_and_count(self, outputs: Tensor, targets: Tensor) -> tuple[Tensor, int]:
        best = outputs.topk(min(self.k, outputs.shape[-1]), dim=-1).indices
        hits = (best == targets.unsqueeze(-1)).any(dim=-1)[targets != IGNORED]
        return hits.sum(), hits.numel()


@dataclass(frozen=True, kw_only=True)
class F1(Metric):
    """The harmonic mean of precision and recall, of classes or of labels.

    Classes: outputs samples x classes, targets a class each. Labels: outputs and targets samples x labels, and a label
    is given where its output is above `threshold`; so it is with one output for each sample, samples x 1 or samples
    alone, and targets of 0 and 1. A class that neither occurs nor is told has F1 0.
    """

    average: Literal["macro", "micro"] = "macro"
    """macro: the mean over classes, each counting the same; micro: of all decisions together."""

    threshold: float = 0.0
    """Of labels: 0 for logits, 0.5 for probabilities."""

    def __post_init__(self) -> None:
        if self.average not in ("macro", "micro"):
            raise WorkloadError(f"F1: average should be macro or micro, not {self.average!r}")

    def state(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Three rows: of each class right, told but wrong, missed."""
        if outputs.dim() == 1 and targets.shape in (outputs.shape, (*outputs.shape, 1)):
            outputs = outputs.unsqueeze(1)
        if outputs.dim() != 2 or targets.shape not in (outputs.shape, outputs.shape[:1]):
            raise WorkloadError(
                f"F1 is of outputs samples x classes, with targets of the same shape (labels) or one class for each "
                f"sample, not of {tuple(outputs.shape)} and {tuple(targets.shape)}"
            )
        if outputs.shape[1] == 1:
            targets = targets.reshape(outputs.shape)
        if targets.dim() == 2:
            told, true = outputs > self.threshold, targets > 0.5
        else:
            classes = torch.arange(outputs.shape[1], device=outputs.device)
            counted = targets != IGNORED
            outputs, targets = outputs[counted], targets[counted]
            told, true = outputs.argmax(dim=1, keepdim=True) == classes, targets.unsqueeze(1) == classes
        counts = [(told & true).sum(dim=0), (told & ~true).sum(dim=0), (~told & true).sum(dim=0)]
        return torch.cat(counts).double().cpu()

    def value(self, state: Tensor) -> float:
        right, wrong, missed = state.view(3, -1) if self.average == "macro" else state.view(3, -1).sum(dim=1)
        decided = 2 * right + wrong + missed
        return float((2 * right / decided.clamp(min=1)).mean())


@dataclass(frozen=True, kw_only=True)
class ConfusionMatrix(Metric):
    """How often which class was told for which: a table, a row for each true class, a column for each told one."""

    tabular = True

    def state(self, outputs: Tensor, targets: Tensor) -> Tensor:
        if outputs.dim() != 2 or outputs.shape[1] < 2 or targets.shape != outputs.shape[:1]:
            raise WorkloadError(
                "ConfusionMatrix is of outputs samples x classes (two or more), with one class for each sample as "
                f"targets, not of {tuple(outputs.shape)} and {tuple(targets.shape)}"
            )
        classes = outputs.shape[1]
        counted = targets != IGNORED
        outputs, targets = outputs[counted], targets[counted].long()
        if len(targets) and not 0 <= int(targets.min()) <= int(targets.max()) < classes:
            raise WorkloadError(
                f"ConfusionMatrix: there are {classes} outputs, and targets from {int(targets.min())} to "
                f"{int(targets.max())}; classes are numbers from 0 on, one for each output, or {IGNORED} for none"
            )
        places = targets * classes + outputs.argmax(dim=1)
        return torch.bincount(places.flatten(), minlength=classes * classes).double().cpu()

    def value(self, state: Tensor) -> list[list[float]]:
        classes = round(len(state) ** 0.5)
        table: list[list[float]] = state.view(classes, classes).tolist()
        return table
