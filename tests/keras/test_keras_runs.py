"""Real runs of the example, and from a run back to Keras."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch

import keras
import minga.keras
from helpers.keras_problems import normalised
from minga.errors import ConfigError
from minga.measure.event_reader import read_events
from minga.measure.events import Stepped
from minga.runs.directory import event_file, save_model
from minga.runs.workload import load_workload

EXAMPLE = Path(__file__).parents[2] / "examples" / "keras_cifar10.py"


def minga_train(*arguments: str, cwd: Path) -> dict[str, Any]:
    command = [sys.executable, "-m", "minga", "train", *arguments, "--json"]
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=170)
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    return result


@pytest.mark.parametrize("strategy", ["ring", pytest.param("local_sgd:period=4", marks=pytest.mark.slow)])
def test_the_example_trains_on_two_nodes_and_loads_back_in_keras(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, strategy: str
) -> None:
    monkeypatch.setenv("MINGA_DATA", str(tmp_path / "nothing"))
    result = minga_train(f"{EXAMPLE}:workload", "--nodes", "2", "--strategy", strategy, cwd=tmp_path)
    steps = [event for event in read_events(event_file(Path(result["run"]), 1)) if isinstance(event, Stepped)]
    losses = [step.loss for step in steps if step.loss is not None]
    assert result["nodes"] == 2 and len(losses) == 60
    assert numpy.mean(losses[-15:]) < numpy.mean(losses[:15]) - 0.3  # in the last epoch against the first
    file = minga.keras.save(result["run"], tmp_path / "trained.keras")
    loaded = keras.saving.load_model(file, safe_mode=True)
    workload = load_workload(f"{EXAMPLE}:workload", None)
    pictures, labels = (tensor.numpy() for tensor in workload.test.tensors)  # type: ignore[union-attr]
    assert numpy.array_equal(
        loaded.predict(pictures, verbose=0), minga.keras.load(result["run"]).predict(pictures, verbose=0)
    )
    # Keras finds the quality that minga told: nothing was lost on the way, statistics included.
    loss, accuracy = loaded.evaluate(pictures, labels, verbose=0)
    assert (loss, accuracy) == pytest.approx((result["loss"], result["accuracy"]), rel=1e-4)


def test_the_example_reads_the_real_pictures(tmp_path: Path) -> None:
    """As they lie in the data set's own files."""
    folder = tmp_path / "cifar10"
    folder.mkdir()
    rows = numpy.random.default_rng(0).integers(0, 256, (4, 3073), dtype=numpy.uint8)
    rows[:, 0] = [3, 1, 4, 9]
    for name in [*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"]:
        rows.tofile(folder / f"{name}.bin")
    workload = load_workload(f"{EXAMPLE}:workload", str(tmp_path))
    assert len(workload.train) == 20 and len(workload.test) == 4  # type: ignore[arg-type]
    picture, label = workload.test[2]  # type: ignore[index]
    assert int(label) == 4 and picture.shape == (32, 32, 3)
    assert picture[5, 7].tolist() == [int(rows[2, 1 + plane * 1024 + 5 * 32 + 7]) for plane in range(3)]
    model = workload.model()
    assert sum(tensor.numel() for tensor in model.parameters() if tensor.requires_grad) > 10_000_000
    assert model(picture[None]).shape == (1, 10)


INNER = """
import keras
from helpers.keras_problems import LABELS, PICTURES

x_train, y_train = PICTURES, LABELS
inner = keras.Sequential([keras.Input((4, 4, 2)), keras.layers.Conv2D(3, 2), keras.layers.BatchNormalization()])
inner.trainable = False
inputs = keras.Input((4, 4, 2))
model = keras.Model(inputs, keras.layers.Dense(3, activation="softmax")(keras.layers.Flatten()(inner(inputs))))
model.compile("adam", "sparse_categorical_crossentropy")
"""


def test_a_model_with_a_model_inside_is_loaded_though_keras_names_its_copies_otherwise(tmp_path: Path) -> None:
    file = tmp_path / "inner.py"
    file.write_text(INNER)
    trained: Any = load_workload(f"{file}:model", None).model()
    trained.layers[-1].kernel.assign(keras.ops.ones_like(trained.layers[-1].kernel))
    save_model(tmp_path, trained)
    (tmp_path / "experiment.toml").write_text(f'workload = "{file}:model"\n')
    loaded = minga.keras.load(tmp_path)
    assert loaded.optimizer is not None
    assert [each.path for each in loaded.variables] != [each.path for each in trained.variables]
    for _ in range(2):
        for own, theirs in zip(loaded.get_weights(), trained.get_weights(), strict=True):
            assert numpy.array_equal(own, theirs)
        loaded.set_weights([numpy.zeros_like(weight) for weight in loaded.get_weights()])
        assert minga.keras.load(tmp_path, loaded) is loaded
    with pytest.raises(ConfigError, match="of another model"):
        minga.keras.load(tmp_path, keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)]))


def test_what_can_not_be_loaded_is_said(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no model\.safetensors"):
        minga.keras.load(tmp_path)
    keras.utils.clear_session()
    save_model(tmp_path, normalised())
    with pytest.raises(ConfigError, match=r"\.keras"):
        minga.keras.save(tmp_path, tmp_path / "model.h5", normalised())
    keras.utils.clear_session()
    same = normalised()
    assert minga.keras.load(tmp_path, same) is same
    with pytest.raises(ConfigError, match="of another model"):
        minga.keras.load(tmp_path, keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)]))
    with pytest.raises(ConfigError, match="no Keras model"):
        minga.keras.load(tmp_path, torch.nn.Linear(1, 1))
    (tmp_path / "model.safetensors").write_bytes(b"nonsense")
    with pytest.raises(ConfigError, match="can't be read"):
        minga.keras.load(tmp_path, same)
