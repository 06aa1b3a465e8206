"""What minga takes from a Keras file: compile(), data, and what it refuses."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch

import keras
import minga.keras
from helpers.keras_problems import LABELS, PICTURES, normalised, plain
from minga.errors import MingaError
from minga.keras.optimizers import learning_rate_of, translate
from minga.runs.workload import load_workload

OPTIMIZERS = {
    "sgd": (lambda: keras.optimizers.SGD(0.1), 1e-4),
    "momentum": (lambda: keras.optimizers.SGD(0.1, momentum=0.9), 1e-4),
    "nesterov": (lambda: keras.optimizers.SGD(0.1, momentum=0.9, nesterov=True), 1e-4),
    "nesterov without momentum": (lambda: keras.optimizers.SGD(0.1, nesterov=True), 1e-4),
    "adam": (lambda: keras.optimizers.Adam(0.01), 2e-4),
    "amsgrad": (lambda: keras.optimizers.Adam(0.01, amsgrad=True), 2e-4),
    "adam with decay": (lambda: keras.optimizers.Adam(0.01, weight_decay=0.1), 2e-4),
    "adamw": (lambda: keras.optimizers.AdamW(0.01, weight_decay=0.1), 2e-4),
    "adamax": (lambda: keras.optimizers.Adamax(0.01), 2e-4),
    "nadam": (lambda: keras.optimizers.Nadam(0.01), 2e-4),
    "rmsprop": (lambda: keras.optimizers.RMSprop(0.01), 1e-4),
    "rmsprop with all": (lambda: keras.optimizers.RMSprop(0.01, momentum=0.5, centered=True), 1e-3),
    "adagrad": (lambda: keras.optimizers.Adagrad(0.1), 1e-4),
    "adadelta": (lambda: keras.optimizers.Adadelta(0.5), 1e-4),
    "the norm of each": (lambda: keras.optimizers.AdamW(0.01, weight_decay=0.1, clipnorm=1.0), 2e-4),
    "the norm of all": (lambda: keras.optimizers.SGD(0.1, momentum=0.9, global_clipnorm=0.5), 1e-4),
    "values": (lambda: keras.optimizers.Adam(0.01, clipvalue=0.1), 2e-4),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_translated_optimizers_move_weights_as_keras_does(name: str) -> None:
    make, tolerance = OPTIMIZERS[name]
    theirs, ours = make(), [torch.nn.Parameter(part) for part in torch.linspace(-1, 1, 20).split([5, 15])]
    variables = [keras.Variable(each.detach().clone()) for each in ours]
    optimizer = translate(theirs, float(theirs.learning_rate))(ours)
    generator = torch.Generator().manual_seed(0)
    begun = torch.cat(ours).detach()
    for _ in range(10):
        gradient = torch.randn(20, generator=generator) * torch.logspace(-2, 1, 20)
        with torch.no_grad():
            theirs.apply(list(gradient.split([5, 15])), variables)
        for each, part in zip(ours, gradient.split([5, 15]), strict=True):
            each.grad = part
        optimizer.step()
    expected = torch.cat([variable.value for variable in variables]).detach()
    moved = (expected - begun).abs()
    assert moved.min() > 0
    assert float(((torch.cat(ours).detach() - expected).abs() / moved.clamp(min=1e-3)).max()) < 10 * tolerance


def test_schedules_follow_progress() -> None:
    schedule = keras.optimizers.schedules.CosineDecay(0.0, decay_steps=80, warmup_target=0.2, warmup_steps=20)
    rate, factor = learning_rate_of(keras.optimizers.SGD(schedule), steps=100)
    assert rate == pytest.approx(0.2) and factor is not None
    assert (
        factor(0.01) == pytest.approx(0.0) and factor(0.11) == pytest.approx(0.5) and factor(0.21) == pytest.approx(1)
    )
    assert factor(0.61) == pytest.approx(0.5, abs=1e-4) and factor(1.0) == pytest.approx(0.0, abs=1e-3)
    assert learning_rate_of(keras.optimizers.SGD(0.3), steps=100) == (pytest.approx(0.3), None)


def test_rates_are_those_of_the_schedule_at_each_step() -> None:
    """The warm-up lasts for half of 4000 steps, so its end is the highest rate only if all of them are looked at."""
    schedule = keras.optimizers.schedules.CosineDecay(0.0, decay_steps=2000, warmup_target=0.2, warmup_steps=2000)
    workload = minga.keras.workload(
        lambda: own(optimizer=keras.optimizers.SGD(schedule)), train=(PICTURES, LABELS), batch=4, epochs=250
    )
    (group,) = workload.optimizer([torch.nn.Parameter(torch.zeros(1))]).param_groups
    assert workload.schedule is not None
    for step in (0, 500, 2000, 3000, 3999):  # progress is that at the end of a step, which Keras counts from 0 on
        assert group["lr"] * workload.schedule((step + 1) / 4000) == pytest.approx(float(schedule(step)), abs=1e-6)


@pytest.mark.parametrize("copied", [False, True])
def test_what_is_excluded_from_weight_decay_does_not_decay(copied: bool) -> None:
    def make() -> Any:
        model = own(optimizer=keras.optimizers.AdamW(0.1, weight_decay=0.5))
        model.optimizer.exclude_from_weight_decay(var_names=["bias"])
        return model

    workload = minga.keras.workload(make() if copied else make, train=(PICTURES, LABELS))
    named = dict(workload.model().named_parameters())
    groups = workload.optimizer(named.values()).param_groups
    decays = {id(parameter): group["weight_decay"] for group in groups for parameter in group["params"]}
    assert {name.rpartition("/")[2]: decays[id(tensor)] for name, tensor in named.items()} == {"kernel": 0.5, "bias": 0}


FILE = """
import keras
from helpers.keras_problems import LABELS, PICTURES, normalised as make

x_train, y_train, x_test, y_test = PICTURES[:48], LABELS[:48], PICTURES[48:], LABELS[48:]
batch_size, epochs = 12, 2
model = make()
"""


@pytest.mark.parametrize("name", ["make", "model"])
def test_a_file_with_a_model_and_data(tmp_path: Path, name: str) -> None:
    (tmp_path / "mine.py").write_text(FILE)
    workload = load_workload(f"{tmp_path}/mine.py:{name}", None)
    assert (workload.name, workload.batch, workload.epochs) == ("mine", 12, 2)
    assert list(workload.metrics) == ["accuracy"]
    first, second = workload.model(), workload.model()
    assert first is not second, "ranks of one process would share a model"
    assert list(first.state_dict()) == list(second.state_dict()), "ranks know parameters by their names"
    torch.manual_seed(5)
    once = workload.model().variables[0].value
    torch.manual_seed(6)
    again = workload.model().variables[0].value
    # A function's weights come from the run's seed; a model goes on from those that it has.
    assert torch.equal(once, again) == (name == "model")


def test_models_of_many_kinds() -> None:
    class Shared(keras.Model):
        """Built when it sees a sample; no `training` in call; two inputs."""

        def __init__(self) -> None:
            super().__init__()
            self.dense = keras.layers.Dense(1)

        def call(self, inputs: Any) -> Any:
            return self.dense(inputs["left"]) + self.dense(inputs["right"])

    def make() -> Any:
        model = Shared()
        model.compile("rmsprop", "mse", metrics=["mae", keras.metrics.MeanSquaredError(name="square")])
        return model

    left = numpy.arange(12.0).reshape(6, 2)
    workload = minga.keras.workload(make, train=({"left": left, "right": left + 1}, left.sum(1)))
    model = workload.model()
    batch = torch.utils.data.default_collate([workload.train[index] for index in range(6)])
    outputs, targets = workload.predict(model, batch)
    expected = model.dense(left) + model.dense(left + 1)
    errors = (expected.squeeze(1) - torch.from_numpy(left.sum(1))).detach()
    assert workload.loss(outputs, targets).item() == pytest.approx(float((errors**2).mean()), rel=1e-5)
    values = {name: metric.value(metric.state(outputs, targets)) for name, metric in workload.all_metrics.items()}
    told = {"mae": float(errors.abs().mean()), "square": float((errors**2).mean())}
    assert values == pytest.approx(told, rel=1e-4)


def own(**compile_options: Any) -> Any:
    model = keras.Sequential([keras.Input((4, 4, 2)), keras.layers.Flatten(), keras.layers.Dense(3)])
    if compile_options:
        model.compile(**{"optimizer": "sgd", "loss": "mse", **compile_options})
    return model


class Largest(keras.metrics.Metric):
    """A maximum: nothing to be added up."""

    def __init__(self) -> None:
        super().__init__(name="largest")
        self.seen = self.add_variable((), initializer="zeros", name="seen")

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        self.seen.assign(keras.ops.maximum(self.seen, 1.0))

    def result(self) -> Any:
        return self.seen


class PerClass(Largest):
    """A number for each class."""

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        self.seen.assign_add(float(len(y_true)))

    def result(self) -> Any:
        return keras.ops.ones(3) * self.seen


def batch_mean(targets: Any, outputs: Any) -> Any:
    return keras.ops.mean(outputs)


class OwnStep(keras.Sequential):
    def train_step(self, data: Any) -> Any:
        raise NotImplementedError


class OwnLoss(keras.Sequential):
    def compute_loss(self, *arguments: Any, **named: Any) -> Any:
        raise NotImplementedError


class SumInside(keras.layers.Layer):
    """As variational autoencoders are often written."""

    def call(self, inputs: Any) -> Any:
        self.add_loss(keras.ops.sum(keras.ops.square(inputs)))
        return inputs


def sum_inside() -> Any:
    model = keras.Sequential([keras.Input((4, 4, 2)), keras.layers.Flatten(), SumInside(), keras.layers.Dense(3)])
    model.compile("sgd", "sparse_categorical_crossentropy")
    return model


def half_precision() -> Any:
    model = keras.Sequential([keras.Input((4, 4, 2)), keras.layers.Flatten()])
    model.add(keras.layers.Dense(3, dtype="mixed_float16"))
    model.compile(keras.optimizers.LossScaleOptimizer(keras.optimizers.Adam()), "mse")
    return model


def constrained() -> Any:
    model = keras.Sequential([keras.Input((4, 4, 2)), keras.layers.Flatten()])
    model.add(keras.layers.Dense(3, name="last", kernel_constraint=keras.constraints.NonNeg()))
    model.compile("sgd", "mse")
    return model


def own_step() -> Any:
    model = OwnStep([keras.Input((4, 4, 2)), keras.layers.Flatten(), keras.layers.Dense(3)])
    model.compile("sgd", "mse")
    return model


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (own, "not compiled"),
        (lambda: own(optimizer="ftrl"), r"known: .*SGD"),
        (lambda: own(optimizer=keras.optimizers.SGD(use_ema=True)), "use_ema"),
        (lambda: own(optimizer=keras.optimizers.SGD(weight_decay=0.1)), "kernel_regularizer"),
        (lambda: own(metrics=["AUC"]), "does not fit outputs of shape"),
        (lambda: own(metrics=[Largest()]), "can't be added up over nodes"),
        (lambda: own(metrics=[batch_mean]), r"'batch_mean' .* one value for each sample"),
        (lambda: own(metrics=[keras.losses.SparseCategoricalCrossentropy()]), "reduction='none'"),
        (lambda: own(loss="sparse_categorical_crossentropy", metrics=[PerClass()]), "gives 3 numbers"),
        (lambda: own(loss=keras.losses.MeanSquaredError(reduction="sum")), "sum_over_batch_size"),
        (lambda: own(loss=lambda targets, outputs: keras.ops.sum(outputs)), r"is a sum over samples.*ops\.mean"),
        (sum_inside, r"is a sum over samples, or has one in it"),
        (half_precision, "mixed_bfloat16"),
        (constrained, "last/kernel has the constraint NonNeg"),
        (own_step, "train_step"),
        (lambda: 3, r"not a keras\.Model"),
    ],
)
def test_what_can_not_be_translated_is_said(make: Any, words: str) -> None:
    with pytest.raises(MingaError, match=words):
        minga.keras.workload(make, train=(PICTURES, LABELS))


def test_models_that_keras_copies_as_another_class_are_refused() -> None:
    model = OwnLoss([keras.Input((4, 4, 2)), keras.layers.Flatten(), keras.layers.Dense(3)])
    model.compile("sgd", "mse")
    with pytest.raises(MingaError, match=r"is a OwnLoss, .* give a function that makes it"):
        minga.keras.workload(model, train=(PICTURES, LABELS))


@pytest.mark.parametrize("loss", [["mse"], {"last": "mse"}])
def test_the_loss_of_the_only_output_may_be_in_a_list_or_by_name(loss: Any) -> None:
    def make() -> Any:
        inputs = keras.Input((4, 4, 2))
        model = keras.Model(inputs, keras.layers.Dense(1, name="last")(keras.layers.Flatten()(inputs)))
        model.compile("sgd", loss)
        return model

    # Files of other machines have the other order of bytes.
    workload = minga.keras.workload(make, train=(PICTURES.astype(PICTURES.dtype.newbyteorder()), LABELS.astype(">f4")))
    model: Any = workload.model()
    outputs, targets = workload.predict(model, workload.train[:])
    squares = (model(PICTURES).squeeze(1) - torch.from_numpy(LABELS)).square()
    assert workload.loss(outputs, targets).item() == pytest.approx(squares.mean().item(), rel=1e-5)
    with pytest.raises(MingaError, match="sum_over_batch_size"):
        minga.keras.workload(lambda: own(loss=[keras.losses.MeanSquaredError("sum")]), train=(PICTURES, LABELS))


def test_copies_have_the_weight_of_the_loss() -> None:
    whole, half = own(loss="mse"), own(loss="mse", loss_weights=0.5)
    half.set_weights(whole.get_weights())
    batch = (torch.from_numpy(PICTURES).float(), torch.eye(3)[LABELS])
    losses = []
    for model in (whole, half):
        workload = minga.keras.workload(model, train=batch)
        losses.append(workload.loss(*workload.predict(workload.model(), batch)).item())
    assert losses[1] == pytest.approx(losses[0] / 2)


def test_wrong_data_is_said(tmp_path: Path) -> None:
    with pytest.raises(MingaError, match="63 targets"):
        minga.keras.workload(plain, train=(PICTURES, LABELS[:63]))
    with pytest.raises(MingaError, match=r"fit\(\)"):
        minga.keras.workload(plain, train=PICTURES)
    with pytest.raises(MingaError, match="NoneType is no array"):
        minga.keras.workload(plain, train=(None, LABELS))
    with pytest.raises(MingaError, match="1 targets"):
        minga.keras.workload(plain, train=(PICTURES, 3))
    for several in ([LABELS, LABELS], {"first": LABELS, "second": LABELS}):
        with pytest.raises(MingaError, match=r"2 arrays of targets.*several outputs"):
            minga.keras.workload(plain, train=(PICTURES, several))
    with pytest.raises(MingaError, match="train has no samples"):
        minga.keras.workload(plain, train=(PICTURES[:0], LABELS[:0]))
    rows = minga.keras.workload(plain, train=(PICTURES, [numpy.array([label]) for label in LABELS]))
    assert len(rows.train) == 64  # type: ignore[arg-type]
    (tmp_path / "empty.py").write_text("from helpers.keras_problems import plain\n")
    with pytest.raises(MingaError, match="x_train and y_train"):
        load_workload(f"{tmp_path}/empty.py:plain", None)


def test_another_backend_is_refused_with_what_to_do() -> None:
    code = """
import sys, types
class Other(types.ModuleType):
    __version__ = "3.9"
    class backend:
        backend = staticmethod(lambda: "jax")
sys.modules["keras"] = Other("keras")
import minga.keras
try:
    minga.keras.workload(None, train=None)
except minga.errors.ConfigError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert "'jax'" in done.stdout and "KERAS_BACKEND=torch" in done.stdout, done.stderr


def test_metrics_count_hits_and_samples() -> None:
    workload = minga.keras.workload(normalised, train=(PICTURES, LABELS))
    model = workload.model().eval()
    outputs, targets = workload.predict(model, (torch.from_numpy(PICTURES).float(), torch.from_numpy(LABELS)))
    hits = int((outputs.argmax(dim=1) == targets).sum())
    assert workload.all_metrics["accuracy"].state(outputs, targets).tolist() == [hits, 64]
    assert math.isfinite(workload.loss(outputs, targets).item())


def test_which_way_is_better_is_what_keras_says_or_else_the_name() -> None:
    def own_error(targets: Any, outputs: Any) -> Any:
        return keras.ops.mean(keras.ops.abs(targets - outputs), axis=-1)

    lower = ["mape", "msle", "hinge", keras.losses.kl_divergence, keras.losses.log_cosh, own_error]
    lower.append(keras.metrics.FalsePositives(name="false_positives"))
    higher = ["accuracy", "cosine_similarity", keras.metrics.F1Score(average="macro", name="f1")]

    def make() -> Any:
        model = own()
        model.compile("sgd", "mse", metrics=[*lower, *higher])
        return model

    workload = minga.keras.workload(make, train=(PICTURES, numpy.eye(3)[LABELS]))
    assert list(workload.metrics)[-3:] == ["accuracy", "cosine_similarity", "f1"]
    named = ["loss", "mape", "msle", "hinge", "kl_divergence", "log_cosh", "own_error", "false_positives"]
    assert workload.lower_is_better == named
