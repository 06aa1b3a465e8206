"""From a raw thing to an answer: what a workload does where it says nothing else.

    workload.respond(model, "seven.png")           # {"class": "7", "probability": 0.98, "top": [...]}

A workload replaces what its data need: `prepare`, `answer`, `present` (docs/workloads.md).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from minga.data.batches import collate, to_device
from minga.errors import ConfigError, DataError
from minga.metrics.classification import F1, ConfusionMatrix, TopKAccuracy
from minga.metrics.metric import PerSample
from minga.metrics.roc import AreaUnderROC
from minga.model.evaluating import device_of
from minga.runs.signature import TensorSpec, inputs_of, specs_of, with_inputs

if TYPE_CHECKING:
    from minga.runs.workload import Workload

__all__ = ["Preparation", "Presentation", "answer_takes", "answered", "ink_is_bright"]

_TOP = 5
_AT_ONCE = 200
"""Inputs that a model looks at together."""


class Preparation:
    """Numbers and pictures in the form of the first sample's inputs."""

    def __init__(
        self, picture: Callable[[Tensor], Tensor] = lambda picture: picture, workload: Workload | None = None
    ) -> None:
        """`picture`: what is done to pictures of 0 to 1, such as what was done to those that were trained with."""
        self._picture = picture
        self._workload = workload

    def of(self, workload: Workload) -> Preparation:
        """The same for a workload."""
        return Preparation(self._picture, workload)

    def __call__(self, raw: Any) -> Tensor:
        """`DataError` for what does not fit."""
        spec = self._expected
        if isinstance(raw, str | Path) or _is_image(raw):
            return self._of_picture(raw, spec)
        return self._of_numbers(raw, spec)

    @cached_property
    def _expected(self) -> TensorSpec:
        assert self._workload is not None, "a workload binds it"
        signature = self._workload.signature
        specs = (
            signature.inputs
            if signature is not None
            else specs_of("inputs", [inputs_of(batch) for batch in self._workload.first_samples])
        )
        if len(specs) != 1 or not isinstance(getattr(torch, specs[0].dtype, None), torch.dtype):
            told = ", ".join(f"{spec.name} ({spec.dtype})" for spec in specs)
            raise DataError(f"{self._name} takes {told}, not one tensor; {_OWN}")
        return specs[0]

    @property
    def _name(self) -> str:
        return self._workload.name if self._workload is not None else "the workload"

    def _of_picture(self, raw: Any, spec: TensorSpec) -> Tensor:
        # Formats are many, and most who import workloads never read a picture.
        from minga.data.formats.base import BadSample, PictureShape
        from minga.data.formats.shaping import open_picture, shape_image

        told = repr(raw) if isinstance(raw, str) else str(raw) if isinstance(raw, Path) else "a picture"
        if len(spec.shape) != 3 or spec.shape[0] not in (1, 3):
            raise DataError(f"{self._name} takes {_shown(spec)}, not {told}; {_OWN}")
        if not _is_image(raw) and not Path(raw).expanduser().is_file():
            raise DataError(f"there is no file {told}; give a picture's path")
        channels, height, width = spec.shape
        try:
            image = raw if _is_image(raw) else open_picture(Path(raw).expanduser())
            if None in (height, width):
                width, height = image.size
            pixels = shape_image(image, PictureShape(width=width, height=height, grey=channels == 1))
        except (BadSample, OSError) as bad:
            raise DataError(f"{told} is no picture that can be read: {bad}; give another") from None
        made = torch.from_numpy(np.array(pixels))
        dtype: torch.dtype = getattr(torch, spec.dtype)
        # Data sets that keep pictures as bytes have them scaled by `predict`.
        return self._picture(made.float() / 255.0).to(dtype) if dtype.is_floating_point else made.to(dtype)

    def _of_numbers(self, raw: Any, spec: TensorSpec) -> Tensor:
        try:
            given = raw.detach() if isinstance(raw, Tensor) else torch.from_numpy(np.array(raw))
        except (TypeError, ValueError):
            raise DataError(f"{self._name} takes {_shown(spec)}, not this {type(raw).__name__}; {_OWN}") from None
        if len(given.shape) != len(spec.shape) or any(
            wanted not in (None, size) for size, wanted in zip(given.shape, spec.shape, strict=True)
        ):
            raise DataError(f"{self._name} takes {_shown(spec)}, not {_sizes(tuple(given.shape))}; {_OWN}")
        made = given.to(getattr(torch, spec.dtype))
        if not made.is_floating_point() and not torch.equal(made.double(), given.double()):
            raise DataError(f"{self._name} takes {_shown(spec)}, and these numbers are no {spec.dtype}; {_OWN}")
        return made


_OWN = "give what fits, or the workload a `prepare` that makes it of this"


def _is_image(raw: Any) -> bool:
    """Whether it is one of Pillow's, which need not be there."""
    return any(cls.__module__ == "PIL.Image" for cls in type(raw).__mro__)


def _sizes(shape: Sequence[int | None]) -> str:
    return " x ".join("any" if size is None else str(size) for size in shape) or "a single number"


def _shown(spec: TensorSpec) -> str:
    return f"{_sizes(spec.shape)} ({spec.dtype})"


def ink_is_bright(picture: Tensor) -> Tensor:
    """Of 0 to 1: one whose edge is bright, as on paper, is inverted, as those of the data are bright on black."""
    rows = (picture[:, 0], picture[:, -1], picture[..., 0], picture[..., -1])
    edge = torch.cat([each.flatten() for each in rows])
    return 1.0 - picture if float(edge.mean()) > 0.5 else picture


def answered(workload: Workload, model: nn.Module, prepared: Sequence[Any], **options: Any) -> list[Any]:
    """What the model says of each of these inputs; the model should be in evaluation mode."""
    if not answer_takes(workload, *options):
        raise ConfigError(f"{workload.name} does not answer with these options: {', '.join(options)}")
    device, home = device_of(model), torch.device("cpu")
    if len(prepared) > 1 and workload.answer_many is not None:
        answers: list[Any] = []
        for start in range(0, len(prepared), _AT_ONCE):
            part = to_device(list(prepared[start : start + _AT_ONCE]), device)
            answers += [to_device(each, home) for each in workload.answer_many(model, part, **options)]
        return answers
    return [to_device(_answer(workload, model, to_device(each, device), options), home) for each in prepared]


def _answer(workload: Workload, model: nn.Module, prepared: Any, options: Mapping[str, Any]) -> Any:
    if workload.answer is not None:
        return workload.answer(model, prepared, **options)
    # Nobody knows its targets: those of the first sample are in their place, since `predict` wants some.
    batch = with_inputs(workload.first_samples[0], collate([prepared], torch.device("cpu")))
    return _only(workload.predict(model, to_device(batch, device_of(model)))[0])


def answer_takes(workload: Workload, *options: str) -> bool:
    """Whether its answer depends on options of these names; without `answer` there are none."""
    if workload.answer is None:
        return not options
    taken = inspect.signature(workload.answer).parameters
    return set(options) <= taken.keys() or any(each.kind is each.VAR_KEYWORD for each in taken.values())


def _only(outputs: Any) -> Any:
    """Of a batch of one."""
    if isinstance(outputs, Mapping):
        return {key: _only(value) for key, value in outputs.items()}
    if isinstance(outputs, tuple):
        return tuple(map(_only, outputs))
    return outputs[0]


class Presentation:
    """Classes and labels with their probabilities where the metrics are of such, plain numbers elsewhere."""

    def __init__(self, workload: Workload | None = None) -> None:
        self._workload = workload

    def of(self, workload: Workload) -> Presentation:
        """The same for a workload."""
        return Presentation(workload)

    def __call__(self, output: Any) -> Any:
        """What `json.dumps` takes."""
        if isinstance(output, Mapping):
            return {key: self(value) for key, value in output.items()}
        if isinstance(output, list | tuple):
            return [self(value) for value in output]
        if not isinstance(output, Tensor):
            return output
        if output.dim() == 1 and len(output) > 1 and self._classifies:
            return self._labels(output.float()) if self._several else self._class(output.float())
        return output.item() if output.numel() == 1 else output.tolist()

    def _class(self, scores: Tensor) -> dict[str, Any]:
        # Some models end with a softmax of their own.
        are_parts = bool((scores >= 0).all()) and abs(float(scores.sum()) - 1) < 1e-3
        parts = scores if are_parts else scores.softmax(dim=0)
        values, places = parts.topk(min(_TOP, len(parts)))
        top = [
            {"class": self._name(place), "probability": part}
            for part, place in zip(values.tolist(), places.tolist(), strict=True)
        ]
        return {**top[0], "top": top}

    def _labels(self, scores: Tensor) -> dict[str, Any]:
        assert self._workload is not None
        thresholds = [metric.threshold for metric in self._workload.all_metrics.values() if isinstance(metric, F1)]
        parts = scores if 0.5 in thresholds else scores.sigmoid()
        told = {str(self._name(place)): part for place, part in enumerate(parts.tolist())}
        return {"labels": [name for name, part in told.items() if part > 0.5], "probabilities": told}

    def _name(self, place: int) -> str | int:
        assert self._workload is not None
        classes = self._workload.classes
        return classes[place] if place < len(classes) else place

    @cached_property
    def _classifies(self) -> bool:
        from minga.runs.workload import correct  # a user of this module

        assert self._workload is not None
        return any(
            isinstance(metric, F1 | TopKAccuracy | ConfusionMatrix | AreaUnderROC)
            or "accuracy" in name.lower()
            or (isinstance(metric, PerSample) and metric.function is correct)
            for name, metric in self._workload.all_metrics.items()
        )

    @cached_property
    def _several(self) -> bool:
        """Whether targets are several labels, each true or not."""
        assert self._workload is not None
        sample = self._workload.first_samples[0]
        targets = sample.get("targets") if isinstance(sample, Mapping) else sample[-1]
        return isinstance(targets, Tensor) and targets.dim() == 2 and targets.shape[1] > 1
