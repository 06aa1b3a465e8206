"""How good a model is: metrics that are right under distribution (docs/metrics.md)."""

from minga.evaluate.bleu import Bleu
from minga.evaluate.classification import F1, ConfusionMatrix, TopKAccuracy
from minga.evaluate.language import Perplexity, WordAccuracy
from minga.evaluate.metric import Metric
from minga.evaluate.regression import R2, MeanAbsoluteError, MeanSquaredError, RootMeanSquaredError
from minga.evaluate.roc import AreaUnderROC

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
