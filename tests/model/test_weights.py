"""Weights from disk: taken whole or not at all, and a training that begins with them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from minga import Cluster, Experiment, Training, run
from minga.engines.local import go_on
from minga.errors import ConfigError
from minga.model.weights import take_weights
from minga.runs.directory import save_model
from minga.runs.experiment import Checkpoints, load
from minga.testing import train_in_threads
from minga.testing.problems import blobs
from minga.training.trained import load_trained


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))


def flat(model: nn.Module) -> Tensor:
    return torch.cat([tensor.detach().double().reshape(-1) for tensor in model.state_dict().values()])


def test_weights_and_statistics_come_from_a_run_or_a_file(tmp_path: Path) -> None:
    model, from_run, from_file = network(), network(), network()
    model(torch.randn(8, 3))  # statistics of its own
    save_model(tmp_path, model)
    take_weights(from_run, tmp_path)
    take_weights(from_file, tmp_path / "model.safetensors")
    assert torch.equal(flat(from_run), flat(model))
    assert torch.equal(flat(from_file), flat(model))


@pytest.mark.parametrize(
    ("other", "told"),
    [
        (nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 5)), r"2\.weight is 5x4 in .*, but 2x4 in the"),
        (nn.Sequential(nn.Linear(3, 4)), r"another model: none are only in the file, 1\.weight, .* only in the model"),
    ],
)
def test_what_does_not_fit_is_told_and_leaves_the_model_as_it_was(tmp_path: Path, other: nn.Module, told: str) -> None:
    save_model(tmp_path, other)
    model = network()
    before = flat(model)
    with pytest.raises(ConfigError, match=told):
        take_weights(model, tmp_path)
    assert torch.equal(flat(model), before)


def test_what_is_not_there_or_no_weights_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"there is no .*nowhere; give a run's directory or a safetensors file"):
        take_weights(network(), tmp_path / "nowhere")
    with pytest.raises(ConfigError, match="it is no run's directory"):
        take_weights(network(), tmp_path)
    (tmp_path / "experiment.toml").touch()
    with pytest.raises(ConfigError, match="minga train --resume"):
        take_weights(network(), tmp_path)
    (tmp_path / "words.txt").write_text("no weights")
    with pytest.raises(ConfigError, match=r"words\.txt can't be read"):
        take_weights(network(), tmp_path / "words.txt")


def test_a_file_without_weights_is_told_before_a_run_is_made(tmp_path: Path) -> None:
    (tmp_path / "words.txt").write_text("no weights")
    training = Training(steps=1, start_from=str(tmp_path / "words.txt"))
    with pytest.raises(ConfigError, match=r"words\.txt can't be read"):
        run(Experiment(workload="digits", training=training, runs=str(tmp_path / "runs")))
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("strategy", ["ring", "ps:mode=sync,servers=2", "adaptive", "local_sgd:period=2", "gossip"])
def test_every_kind_of_strategy_begins_with_them(tmp_path: Path, strategy: str) -> None:
    workload = blobs()
    torch.manual_seed(99)
    model = workload.model()
    save_file(model.state_dict(), tmp_path / "mine.safetensors")
    training = Training(steps=2, learning_rate=1e-12, start_from=str(tmp_path / "mine.safetensors"))
    experiment = Experiment(workload="blobs", strategy=strategy, cluster=Cluster(nodes=2), training=training)
    replicas = train_in_threads(experiment, workload)
    for replica in replicas[:2]:
        torch.testing.assert_close(flat(replica.model), flat(model), rtol=0, atol=1e-9)


@pytest.mark.slow
def test_a_run_that_has_begun_needs_them_no_more(tmp_path: Path) -> None:
    first = run(Experiment(workload="digits", training=Training(steps=60), runs=str(tmp_path)))
    weights = tmp_path / "begin.safetensors"
    (Path(first.run) / "model.safetensors").rename(weights)
    training = Training(steps=3, learning_rate=1e-9, start_from=str(weights))
    summary = run(
        Experiment(
            workload="digits",
            strategy="ring",
            cluster=Cluster(nodes=2),
            training=training,
            checkpoints=Checkpoints(every_steps=2),
            runs=str(tmp_path),
        )
    )
    assert summary.metrics["accuracy"] == pytest.approx(first.metrics["accuracy"], abs=0.005)
    weights.unlink()
    directory = Path(summary.run)
    assert load(directory / "experiment.toml").training.start_from == str(weights)
    longer = load(directory / "experiment.toml").to_toml().replace("steps = 3", "steps = 4")
    (directory / "experiment.toml").write_text(longer)
    assert go_on(directory).metrics["accuracy"] == pytest.approx(first.metrics["accuracy"], abs=0.005)
    assert load_trained(directory).model is not None
