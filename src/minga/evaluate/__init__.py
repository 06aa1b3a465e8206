"""How good a model is: metrics that are right under distribution."""

from minga.evaluate.evaluation import evaluate

__all__ = ["evaluate"]
