"""Keras models in training: equal to one process, to Keras' own fit(), to themselves after a checkpoint."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch

import keras
import minga.keras
from helpers.keras_problems import LABELS, PICTURES, normalised, plain
from minga.comm.threads import run_threads
from minga.comm.transport import Transport
from minga.measure.recorder import Recorder
from minga.model.keras_parts import is_seed
from minga.runs.directory import event_file, save_model
from minga.runs.experiment import Checkpoints, Cluster, Experiment, Training
from minga.runs.workload import Workload
from minga.training.checkpoints.files import list_checkpoints
from minga.training.checkpoints.manager import CheckpointManager
from minga.training.loop import train
from minga.training.train_state import TrainState, build_train_state


def experiment_of(strategy: str, nodes: int, **training: Any) -> Experiment:
    return Experiment(
        workload="keras",
        strategy=strategy,
        cluster=Cluster(nodes=nodes),
        training=Training(**{"epochs": 3, "evaluate_every": 0, **training}),
        checkpoints=Checkpoints(every_steps=4, every_seconds=0, keep=100, keep_best=False),
    )


def trained(
    experiment: Experiment, workload: Workload, run: Path | None = None, resume: int | None = None
) -> list[TrainState]:
    """Train in threads; `run`: with checkpoints there, from one of them if so."""
    train_states = [build_train_state(experiment, workload, rank) for rank in range(experiment.ranks)]

    def body(comm: Transport) -> TrainState:
        recorder = Recorder(event_file(run, comm.rank) if run else None)
        checkpoints = None
        if run is not None:
            resume_from = None if resume is None else list_checkpoints(run)[resume]
            checkpoints = CheckpointManager(
                run, experiment.checkpoints, train_states[comm.rank], recorder, resume_from=resume_from
            )
        try:
            train(experiment, train_states[comm.rank], comm, recorder, checkpoints)
        finally:
            recorder.close()
        return train_states[comm.rank]

    return run_threads(experiment.ranks, body)


def untrained(train_state: TrainState) -> dict[str, torch.Tensor]:
    named = train_state.replica.model.named_parameters()
    return {name: tensor.detach() for name, tensor in named if not tensor.requires_grad}


@pytest.fixture
def doubles() -> Iterator[None]:
    keras.config.set_floatx("float64")
    yield
    keras.config.set_floatx("float32")


@pytest.mark.usefixtures("doubles")
def test_two_ranks_with_ring_equal_one_process_with_the_whole_batch() -> None:
    workload = minga.keras.workload(plain, train=(PICTURES[:60], LABELS[:60]))
    alone = trained(experiment_of("single", 1, batch=16), workload)
    together = trained(experiment_of("ring", 2, batch=8), workload)
    for train_state in together:
        assert torch.allclose(train_state.replica.parameters, alone[0].replica.parameters, rtol=0, atol=1e-12)
    begun = build_train_state(experiment_of("single", 1), workload, 0).replica.parameters
    assert not torch.allclose(begun, alone[0].replica.parameters, atol=1e-2)


@pytest.mark.parametrize("nodes", [2, 3])
def test_batch_normalization_over_the_samples_of_all_ranks_is_that_of_one_process(nodes: int) -> None:
    def make() -> Any:
        model = normalised(rate=0.0)
        # Adam would make steps of the last digits of gradients that are zero, as those of a bias before a norm are.
        model.compile(optimizer=keras.optimizers.SGD(0.1, momentum=0.9), loss=model.loss)
        return model

    workload = minga.keras.workload(make, train=(PICTURES[:56], LABELS[:56]))
    alone = trained(experiment_of("single", 1, batch=18), workload)[0]
    apart = trained(experiment_of("ring", nodes, total_batch=18, batch_norm="each_node"), workload)[0]
    assert not torch.allclose(apart.replica.parameters, alone.replica.parameters, rtol=0, atol=1e-2)
    for train_state in trained(experiment_of("ring", nodes, total_batch=18), workload):
        assert torch.allclose(train_state.replica.parameters, alone.replica.parameters, rtol=0, atol=1e-5)
        for name, tensor in untrained(alone).items():
            if not is_seed(name):
                torch.testing.assert_close(untrained(train_state)[name], tensor, rtol=0, atol=1e-5)
        assert all("_moments" not in vars(layer) for layer in train_state.replica.model.layers)


def test_one_rank_equals_fit_with_regularizers_and_batch_normalization() -> None:
    """The whole data as one batch, so that its order does not matter."""

    def make() -> Any:
        model = normalised(rate=0.0)
        model.compile(optimizer=keras.optimizers.SGD(0.1, momentum=0.9), loss=model.loss, metrics=["accuracy"])
        return model

    begun = make()
    workload = minga.keras.workload(begun, train=(PICTURES, LABELS), test=(PICTURES, LABELS))
    own = trained(experiment_of("single", 1, batch=64, epochs=6), workload)[0]
    begun.fit(PICTURES, LABELS, batch_size=64, epochs=6, shuffle=False, verbose=0)
    for ours, theirs in zip(own.replica.model.variables, begun.variables, strict=True):
        if not is_seed(ours.path):
            torch.testing.assert_close(ours.value, theirs.value, rtol=1e-4, atol=1e-5)
    loss, accuracy = begun.evaluate(PICTURES, LABELS, verbose=0)
    metrics = run_threads(1, own.evaluate)[0].numbers
    assert metrics == pytest.approx({"loss": loss, "accuracy": accuracy}, abs=1e-4)


def test_one_rank_follows_a_schedule_as_fit_does() -> None:
    def make() -> Any:
        model = plain()
        schedule = keras.optimizers.schedules.PiecewiseConstantDecay([1, 3], [0.5, 0.05, 0.005])
        model.compile(optimizer=keras.optimizers.SGD(schedule), loss=model.loss)
        return model

    begun = make()
    workload = minga.keras.workload(begun, train=(PICTURES, LABELS), batch=64, epochs=6)
    own = trained(experiment_of("single", 1, batch=64, epochs=6), workload)[0]
    begun.fit(PICTURES, LABELS, batch_size=64, epochs=6, shuffle=False, verbose=0)
    for ours, theirs in zip(own.replica.model.variables, begun.variables, strict=True):
        torch.testing.assert_close(ours.value, theirs.value, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("strategy", ["ring", "local_sgd:period=2", "ps:mode=sync", "diloco:period=3", "gossip"])
def test_statistics_are_agreed_on_and_seeds_are_not(strategy: str) -> None:
    data = (PICTURES, LABELS)
    workload = minga.keras.workload(lambda: normalised(dropout_seed=7), train=data, test=data)
    ranks = [
        train_state
        for train_state in trained(experiment_of(strategy, 2, batch=8), workload)
        if train_state.replica.progress.last_applied_step
    ]
    first, second = untrained(ranks[0]), untrained(ranks[1])
    statistics = [name for name in first if not is_seed(name)]
    assert [name.rpartition("/")[2] for name in statistics] == ["moving_mean", "moving_variance"]
    for name in statistics:
        assert torch.equal(first[name], second[name])
        assert first[name].abs().sum() > 0 and not torch.equal(first[name], torch.ones_like(first[name]))
    (seed,) = [name for name in first if is_seed(name)]
    assert int(first[seed][0]) == 7 != int(second[seed][0])  # rank 0 draws as Keras alone would
    assert int(first[seed][1]) > 0, "the generator has not been used"


@pytest.mark.parametrize("dropout_seed", [None, 7])
def test_ranks_drop_different_units(dropout_seed: int | None) -> None:
    workload = minga.keras.workload(lambda: normalised(dropout_seed), train=(PICTURES, LABELS))
    inputs, targets = torch.from_numpy(PICTURES[:8]).float(), torch.from_numpy(LABELS[:8])
    outputs = []
    for rank in (0, 1):
        train_state = build_train_state(experiment_of("ring", 2), workload, rank)
        outputs.append(workload.predict(train_state.replica.model, (inputs, targets))[0])
        train_state.replica.model.eval()
        outputs.append(workload.predict(train_state.replica.model, (inputs, targets))[0])
    assert not torch.allclose(outputs[0], outputs[2])
    assert not torch.allclose(outputs[0], outputs[1])


def test_the_pooled_variance_is_that_of_all_samples() -> None:
    """Ranks with very different samples: the mean of their variances alone would be far too small."""
    from minga.model.buffers import agree_on_buffers

    def body(comm: Transport) -> Any:
        model = keras.Sequential([keras.Input((5,)), keras.layers.BatchNormalization(momentum=0.0)])
        samples = numpy.random.default_rng(comm.rank).normal(10.0 * comm.rank, 1.0, (4000, 5)).astype("float32")
        model(samples, training=True)
        agree_on_buffers(model, comm)
        return model.layers[0]

    for layer in run_threads(2, body):
        assert numpy.allclose(layer.moving_mean.value.detach(), 5.0, atol=0.1)
        assert numpy.allclose(layer.moving_variance.value.detach(), 26.0, atol=1.0)


@pytest.mark.parametrize("strategy", ["ring", "local_sgd:period=3"])
def test_going_on_from_a_checkpoint_gives_the_same_bits(tmp_path: Path, strategy: str) -> None:
    (tmp_path / "events").mkdir()
    # A seed in the model, so that threads that share torch's generator here still draw the same.
    workload = minga.keras.workload(lambda: normalised(dropout_seed=7), train=(PICTURES, LABELS))
    experiment = experiment_of(strategy, 2, batch=8)
    whole = trained(experiment, workload, tmp_path)
    assert len(list_checkpoints(tmp_path)) > 1
    resumed = trained(experiment, workload, tmp_path, resume=0)
    for before, after in zip(whole, resumed, strict=True):
        assert torch.equal(before.replica.parameters, after.replica.parameters)
        theirs = untrained(after)
        for name, tensor in untrained(before).items():
            assert torch.equal(tensor, theirs[name]), name
    another = trained(experiment_of(strategy, 3, batch=8), workload, tmp_path, resume=0)
    seeds = [next(t for name, t in untrained(train_state).items() if is_seed(name)) for train_state in another]
    assert len({int(seed[0]) for seed in seeds}) == 3


def test_metrics_that_are_no_means_are_those_of_keras_over_all_samples_of_all_ranks() -> None:
    first = (LABELS == 0).astype("float32")[:, None]

    def counting() -> list[Any]:
        return [
            keras.metrics.AUC(name="auc"),
            keras.metrics.F1Score(threshold=0.5),
            keras.metrics.Recall(name="recall"),
        ]

    def make() -> keras.Model:
        model = keras.Sequential([keras.Input(PICTURES.shape[1:]), keras.layers.Flatten()])
        model.add(keras.layers.Dense(1, activation="sigmoid"))
        model.compile("sgd", "binary_crossentropy", metrics=counting())
        return model

    # Of 61 samples, three ranks have different numbers: a mean over ranks would be another number.
    workload = minga.keras.workload(make, train=(PICTURES, first), test=(PICTURES[:61], first[:61]))
    train_states = [build_train_state(experiment_of("ring", 3), workload, rank) for rank in range(3)]
    found = run_threads(3, lambda comm: train_states[comm.rank].evaluate(comm))[0].numbers
    model = train_states[0].replica.model
    model.compile("sgd", "binary_crossentropy", metrics=counting())
    told = model.evaluate(PICTURES[:61], first[:61], batch_size=61, verbose=0, return_dict=True)
    assert {"auc", "f1_score", "recall"} <= set(found)
    assert {name: found[name] for name in ("auc", "f1_score", "recall")} == pytest.approx(
        {name: numpy.ravel(told[name])[0] for name in ("auc", "f1_score", "recall")}, abs=1e-5
    )


def test_padding_counts_in_no_metric() -> None:
    words = numpy.random.default_rng(0).integers(1, 10, (31, 5))
    words[numpy.arange(5) >= numpy.arange(31)[:, None] % 5 + 1] = 0  # sentences of one to five words
    tags = words % 3

    def make() -> Any:
        model = keras.Sequential([keras.Input((5,)), keras.layers.Embedding(10, 4, mask_zero=True)])
        model.add(keras.layers.Dense(3, activation="softmax"))
        model.compile("sgd", "sparse_categorical_crossentropy", metrics=["accuracy"])
        return model

    workload = minga.keras.workload(make, train=(words, tags), test=(words, tags))
    train_states = [build_train_state(experiment_of("ring", 3), workload, rank) for rank in range(3)]
    found = run_threads(3, lambda comm: train_states[comm.rank].evaluate(comm))[0].numbers
    outputs = train_states[0].replica.model(words)
    hits = (outputs.argmax(dim=-1) == torch.from_numpy(tags)).double()
    assert found["accuracy"] == pytest.approx(float(hits[words != 0].mean()), abs=1e-5)
    assert found["accuracy"] != pytest.approx(float(hits.mean()), abs=1e-2)


def test_inner_models_with_layers_of_the_same_name_are_trained_and_saved(tmp_path: Path) -> None:
    def tower(name: str) -> Any:
        inputs = keras.Input((4, 4, 2))
        outputs = keras.layers.Dense(3, name="hidden")(keras.layers.Flatten()(inputs))
        return keras.Model(inputs, outputs, name=name)

    def make() -> Any:
        inputs = keras.Input((4, 4, 2))
        outputs = keras.layers.Add()([tower("left")(inputs), tower("right")(inputs)])
        model = keras.Model(inputs, keras.layers.Softmax()(outputs))
        model.compile("sgd", "sparse_categorical_crossentropy")
        return model

    workload = minga.keras.workload(make, train=(PICTURES, LABELS))
    begun = build_train_state(experiment_of("ring", 2), workload, 0).replica.model.get_weights()
    first, second = (train_state.replica.model for train_state in trained(experiment_of("ring", 2, epochs=1), workload))
    assert len(begun) == 4
    for before, after, other in zip(begun, first.get_weights(), second.get_weights(), strict=True):
        assert not numpy.array_equal(before, after) and numpy.array_equal(after, other)
    save_model(tmp_path, first)
    for saved, own in zip(minga.keras.load(tmp_path, make()).get_weights(), first.get_weights(), strict=True):
        assert numpy.array_equal(saved, own)


def test_what_a_layer_gets_after_it_was_built_is_trained() -> None:
    def make() -> Any:
        model = keras.Sequential([keras.Input((4, 4, 2)), keras.layers.Flatten(), keras.layers.Dense(3)])
        model.layers[1].enable_lora(2)
        model.compile(keras.optimizers.SGD(0.1), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        return model

    workload = minga.keras.workload(make, train=(PICTURES, LABELS))
    begun_model: Any = build_train_state(experiment_of("ring", 2), workload, 0).replica.model
    begun = {variable.path: variable.numpy() for variable in begun_model.variables}
    first, second = (train_state.replica.model for train_state in trained(experiment_of("ring", 2), workload))
    moved = [one.path for one in first.variables if not numpy.array_equal(begun[one.path], one.numpy())]
    assert [path.rpartition("/")[2] for path in moved] == ["bias", "lora_kernel_a", "lora_kernel_b"]
    for one, other in zip(first.variables, second.variables, strict=True):
        assert numpy.array_equal(one.numpy(), other.numpy())
