"""How good a model is: metrics that are right under distribution (docs/metrics.md)."""

from minga.metrics.bleu import Bleu
from minga.metrics.classification import F1, ConfusionMatrix, TopKAccuracy
from minga.metrics.language import Perplexity, WordAccuracy
from minga.metrics.metric import Metric
from minga.metrics.regression import R2, MeanAbsoluteError, MeanSquaredError, RootMeanSquaredError
from minga.metrics.roc import AreaUnderROC

__all__ = [
    "F1",
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
