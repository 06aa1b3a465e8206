"""What is trained: model, data, loss, optimizer, metrics, as one plain object.

    workload = Workload(name="mine", model=Net, train=train_set, test=test_set)

A user's file has such an object, or a function that returns one; `minga train my.py:workload` finds it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils.data import Dataset

from minga.base.user_files import load_from_file
from minga.data.batches import to_device
from minga.data.stream import StreamReader, is_stream
from minga.errors import WorkloadError, unknown
from minga.measure.metric_names import main_metric
from minga.metrics.metric import Metric, as_metric
from minga.model.evaluating import device_of, evaluating
from minga.model.keras_parts import is_keras_model, prefer_torch
from minga.runs.answering import Preparation, Presentation, answered
from minga.runs.signature import Signature, inputs_of, samples_alone, specs_of

__all__ = ["FurtherTest", "Workload", "correct", "load_workload"]


def correct(outputs: Tensor, targets: Tensor) -> Tensor:
    """1 for each sample whose largest output is at the target class, 0 for the others."""
    if outputs.dim() == 2 and outputs.shape[1] == 1:
        raise WorkloadError(
            f"of one output for each sample ({len(outputs)} x 1) none is the largest, so accuracy means nothing; "
            "give the workload other metrics, such as metrics={'F1': F1()} from minga.metrics, or two outputs"
        )
    return (outputs.argmax(dim=-1) == targets).double()


def _model_and_targets(model: nn.Module, batch: Any) -> tuple[Tensor, Tensor]:
    if not (isinstance(batch, list | tuple) and len(batch) == 2):
        what = f"with {len(batch)} parts" if isinstance(batch, list | tuple) else f"of type {type(batch).__name__}"
        raise WorkloadError(f"a batch {what} is not (inputs, targets): give the workload a predict(model, batch)")
    inputs, targets = batch
    return model(inputs), targets


def _sgd(parameters: Iterable[nn.Parameter]) -> Optimizer:
    return torch.optim.SGD(parameters, lr=0.05, momentum=0.9)


AnyMetric = Metric | Callable[[Any, Any], Tensor]
"""A metric, or a function of outputs and targets that gives one value for each sample."""


@dataclass(frozen=True, kw_only=True)
class FurtherTest:
    """Another look at the model at each evaluation: at other data, or at what it generates."""

    data: Dataset[Any]
    """Shared between ranks, as the workload's `test` is."""

    metrics: Mapping[str, AnyMetric]
    """By names that no other metric of the workload has."""

    predict: Callable[[nn.Module, Any], tuple[Any, Any]] = _model_and_targets
    """Outputs and targets of a batch, as these metrics take them."""

    batch: int = 256
    """Samples that are looked at together."""


@dataclass(frozen=True, kw_only=True)
class Workload:
    """What is trained."""

    name: str
    """For people and for run directories."""

    model: Callable[[], nn.Module]
    """Makes a new model; called once on every rank, after the seed is set."""

    train: Dataset[Any]
    """Map-style: has a length and gives samples by index. A `TensorDataset` is read a batch at a time.

    Or a stream, such as torch's `IterableDataset`: see `minga.data.stream` for what it must keep to.
    """

    test: Dataset[Any] | None = None
    """What metrics are measured on; None: nothing is evaluated."""

    loss: Callable[[Tensor, Tensor], Tensor] = nn.functional.cross_entropy
    """Of outputs and targets: the mean over the samples. A mean over something else, such as the words of sentences of
    different lengths, is not the same on several nodes as on one: divide the sum by samples times a constant."""

    predict: Callable[[nn.Module, Any], tuple[Tensor, Tensor]] = _model_and_targets
    """Outputs and targets of a batch; replace it where a batch is not just (inputs, targets)."""

    optimizer: Callable[[Iterable[nn.Parameter]], Optimizer] = _sgd
    """Makes the optimizer for the model's parameters; `minga.clipped` makes it clip gradients."""

    metrics: Mapping[str, AnyMetric] = field(default_factory=lambda: {"accuracy": correct})
    """Of outputs and targets: one value per sample, of which the mean is taken over all samples of all ranks, once; or
    any of `minga.metrics`, such as F1()."""

    further_tests: Sequence[FurtherTest] = ()
    """Other data, or what the model generates, looked at beside `test`."""

    main: str | None = None
    """The metric that stands for all where one must: the best checkpoint, tables, targets (default: the first)."""

    schedule: Callable[[float], float] | None = None
    """Factor on the learning rate as a function of progress, 0 to 1."""

    batch: int = 32
    """Samples of each node in a step, unless the experiment says otherwise."""

    epochs: int = 5
    """Passes over the data, unless the experiment says otherwise."""

    test_batch: int = 256
    """Samples that are tested together."""

    signature: Signature | None = None
    """What goes into the model and what comes out, for a sample; None: `describe` finds it in two samples."""

    prepare: Callable[[Any], Any] = field(default_factory=Preparation)
    """Makes a sample's input of a raw thing: a picture, a sentence, numbers (default: numbers in the form of the first
    sample's, pictures where that is one; `Preparation(picture=...)` changes pictures of 0 to 1 as the data's were)."""

    answer: Callable[..., Any] | None = None
    """Of model, prepared input and options, where an answer is more than one forward pass: `answer(model, prepared,
    **options)`; None: `predict`, of a batch of one."""

    answer_many: Callable[..., Sequence[Any]] | None = None
    """The same of a list of prepared inputs, where many at once take less time than one after the other."""

    present: Callable[[Any], Any] = field(default_factory=Presentation)
    """Makes what a person reads of a sample's output (default: the class and its probability where metrics classify,
    otherwise plain numbers)."""

    classes: tuple[str, ...] = ()
    """Names of the classes or labels, by number."""

    references: Mapping[str, Mapping[str, Sequence[str]]] = field(default_factory=dict)
    """Where answers are text: by split and raw thing, what people answered."""

    def __post_init__(self) -> None:
        for name in ("prepare", "present"):
            default = getattr(self, name)
            if isinstance(default, Preparation | Presentation):  # also of the workload that this is a changed copy of
                object.__setattr__(self, name, default.of(self))

    @cached_property
    def first_samples(self) -> list[Any]:
        """Two, each as a batch of one."""
        return samples_alone(self.train, 2)

    def describe(self, model: nn.Module) -> Signature:
        """What the model takes and gives: the signature, or what two samples show."""
        if self.signature is not None:
            return self.signature
        device = device_of(model)
        with evaluating(model):
            outputs = [self.predict(model, to_device(batch, device))[0] for batch in self.first_samples]
        inputs = [inputs_of(batch) for batch in self.first_samples]
        return Signature(specs_of("inputs", inputs), specs_of("outputs", outputs))

    def respond(self, model: nn.Module, raw: Any, **options: Any) -> Any:
        """What a person reads of a raw thing: `present(answer(model, prepare(raw), **options))`."""
        return self.respond_to_all(model, [raw], **options)[0]

    def respond_to_all(self, model: nn.Module, raws: Sequence[Any], **options: Any) -> list[Any]:
        """The same of several, of which the model may look at many at once."""
        prepared = [self.prepare(raw) for raw in raws]
        with evaluating(model):
            return [self.present(output) for output in answered(self, model, prepared, **options)]

    @property
    def all_metrics(self) -> dict[str, Metric]:
        """Those of all tests, in order."""
        named = [self.metrics, *(further.metrics for further in self.further_tests)]
        return {name: as_metric(name, metric) for some in named for name, metric in some.items()}

    @property
    def main_metric(self) -> str:
        """The name of the metric that stands for all; that of the loss where there is none."""
        numbers = [name for name, metric in self.all_metrics.items() if not metric.tabular]
        return self.main or main_metric(numbers) or "loss"

    @property
    def lower_is_better(self) -> list[str]:
        """The names of metrics that are the better the lower they are."""
        return ["loss", *(name for name, metric in self.all_metrics.items() if metric.lower_is_better)]


def load_workload(reference: str, data: str | None) -> Workload:
    """The workload behind a built-in name or `file.py:name`."""
    # The built-in workloads are users of this module, so they are looked up only when asked for.
    from minga.workloads import built_in

    directory = Path(data).expanduser() if data else None
    if ".py" not in reference:
        return built_in(reference, directory)
    if ":" not in reference:
        reference += ":workload"
    prefer_torch()  # should the file import Keras
    found = named = load_from_file(reference)
    if inspect.isfunction(found):
        parameters = inspect.signature(found).parameters.values()
        needed = [each.name for each in parameters if each.default is each.empty and each.kind is not each.VAR_KEYWORD]
        if set(needed) - {"data"}:
            raise WorkloadError(f"{reference} needs {', '.join(needed)}; a workload's function takes nothing but data")
        found = found(data=directory) if "data" in {each.name for each in parameters} else found()
    if is_keras_model(found):
        from minga.keras import workload_in_file

        found = workload_in_file(reference, named)
    if not isinstance(found, Workload):
        raise WorkloadError(
            f"{reference} is a {type(found).__name__}, not a minga.Workload, a compiled Keras model or a function that "
            "makes one of these"
        )
    _check(found)
    return found


def _check(workload: Workload) -> None:
    _check_kinds(workload)
    for name in ("train", "test"):
        dataset = getattr(workload, name)
        if dataset is None:
            continue
        if is_stream(dataset):
            StreamReader(dataset)  # refuses what can't be read
        elif not hasattr(dataset, "__len__"):
            raise WorkloadError(f"{workload.name}.{name} is a {type(dataset).__name__} without a length; give it one")
        elif len(dataset) == 0:
            raise WorkloadError(f"{workload.name}.{name} is empty; give samples, or None for no test")
    names = [*workload.metrics, *(name for further in workload.further_tests for name in further.metrics)]
    if len(set(names)) < len(names):
        raise WorkloadError(f"{workload.name} has several metrics of the same name: {', '.join(names)}")
    for further in workload.further_tests:
        if workload.test is None or not (is_stream(further.data) or len(further.data)):  # type: ignore[arg-type]
            which = ", ".join(further.metrics)
            raise WorkloadError(
                f"{workload.name}: a further test ({which}) needs samples, and a test beside it; give both, or neither"
            )
    numbers = ["loss", *(name for name, metric in workload.all_metrics.items() if not metric.tabular)]
    if workload.main is not None and workload.main not in numbers:
        raise unknown(f"main metric of {workload.name}:", workload.main, numbers)
    for name in ("batch", "epochs", "test_batch"):
        if getattr(workload, name) < 1:
            raise WorkloadError(f"{workload.name}.{name} should be at least 1, not {getattr(workload, name)}")


def _check_kinds(workload: Workload) -> None:
    """Slips that would show up on a rank only, as a traceback."""
    name = workload.name
    if isinstance(workload.model, nn.Module):
        kind = type(workload.model).__name__
        raise WorkloadError(f"{name}.model is a {kind}, not what makes one on each rank; give model=lambda: {kind}()")
    for part in ("prepare", "present", "answer", "answer_many"):
        value = getattr(workload, part)
        if not callable(value) and not (value is None and part.startswith("answer")):
            raise WorkloadError(f"{name}.{part} should be a function, not {value!r}")
    classes: Any = workload.classes
    if isinstance(classes, str):
        raise WorkloadError(f"{name}.classes should be a tuple of names, not {classes!r}; give tuple({classes!r})")
    for some in (workload.metrics, *(further.metrics for further in workload.further_tests)):
        if not isinstance(some, Mapping):
            raise WorkloadError(f"{name}.metrics should be a dict of names and metrics, not {some!r}")
        for metric, value in some.items():
            if isinstance(value, type) and issubclass(value, Metric):
                raise WorkloadError(f"{name}: the metric {metric!r} is a class; make one of it: {value.__name__}()")
            if not isinstance(value, Metric) and not callable(value):
                raise WorkloadError(
                    f"{name}: the metric {metric!r} should be one of minga.metrics or a function of outputs and "
                    f"targets, not {value!r}"
                )
