"""How good a model is: metrics that are right under distribution (docs/metrics.md)."""

from minga.metrics.bleu import Bleu
from minga.metrics.classification import F1, ConfusionMatrix, TopKAccuracy
from minga.metrics.language import Perplexity, WordAccuracy
from minga.metrics.metric import Metric
from minga.metrics.regression import R2, MeanAbsoluteError, MeanSquaredError, RootMeanSquaredError
from minga.metrics.roc import AreaUnderROC

__all__ = [
    "F1",
    "METRICS",
    "R2",
    "AreaUnderROC",
    "Bleu",
    "ConfusionMatrix",
    "MeanAbsoluteError",
    "MeanSquaredError",
    "Metric",
    "Perplexity",
    "RootMeanSquaredError",
    "TopKAccuracy",
    "WordAccuracy",
]

METRICS: dict[str, type[Metric]] = {
    metric.__name__: metric
    for metric in (
        F1,
        R2,
        AreaUnderROC,
        Bleu,
        ConfusionMatrix,
        MeanAbsoluteError,
        MeanSquaredError,
        Perplexity,
        RootMeanSquaredError,
        TopKAccuracy,
        WordAccuracy,
    )
}
"""By name: each has a row in docs/metrics.md, and tests that one rank and several find the same."""
