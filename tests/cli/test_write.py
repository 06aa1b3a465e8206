"""`minga write`, and what a finished run has learned."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

import minga
from minga.cli.main import application
from minga.errors import ConfigError, RunError
from minga.training.trained import load_trained
from minga.workloads.models import SmallTransformer
from minga.workloads.text import continued

TEXT = "to be or not to be that is the question\n" * 60


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("write")
    (place / "text").mkdir()
    (place / "text" / "tinyshakespeare.txt").write_text(TEXT)
    experiment = minga.Experiment(
        workload="shakespeare",
        data=str(place),
        training=minga.Training(epochs=12, batch=8, evaluate_every=0),
        runs=str(place / "runs"),
    )
    summary = minga.run(experiment)
    assert summary.metrics["perplexity"] < 2
    return Path(summary.run)


def test_it_goes_on_as_it_has_learned(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["write", str(run), "--prompt", "to be or not to be that is ", "--characters", "12", "--temperature", "0"]
    application(words, standalone_mode=False)
    assert capsys.readouterr().out == "to be or not to be that is the question\n"


def test_nearly_no_temperature_is_none(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def written(temperature: str) -> str:
        application(["write", str(run), "--prompt", "to", "--temperature", temperature], standalone_mode=False)
        return capsys.readouterr().out

    assert written("1e-300") == written("1e-5") == written("0")


def test_machines_get_json(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["write", str(run), "--prompt", "to be", "--characters", "4", "--temperature", "0", "--json"]
    application(words, standalone_mode=False)
    assert json.loads(capsys.readouterr().out) == {"run": str(run), "prompt": "to be", "text": "to be or "}


def test_the_seed_decides_what_is_drawn(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def written(seed: str) -> str:
        application(["write", str(run), "--temperature", "3", "--seed", seed], standalone_mode=False)
        return capsys.readouterr().out

    assert written("1") == written("1") != written("2")
    assert len(written("1")) == 402  # the prompt, 400 characters, the end of the line


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--characters", "0"], "--characters should be at least 1"),
        (["--temperature", "-1"], "--temperature should be 0 to 10, not -1"),
        (["--seed", str(2**63)], "--seed should fit into 64 bits, not 9223372036854775808"),
        (["--prompt", "ROMEO"], r"not \['E', 'M', 'O', 'R'\]"),
        (["--prompt", ""], "at least one; not ''"),
    ],
)
def test_what_it_refuses(run: Path, words: list[str], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        application(["write", str(run), *words], standalone_mode=False)


def test_other_runs_write_nothing(tmp_path: Path) -> None:
    experiment = minga.Experiment(workload="digits", training=minga.Training(steps=2), runs=str(tmp_path))
    summary = minga.run(experiment)
    with pytest.raises(ConfigError, match="trained digits, which writes no text"):
        application(["write", summary.run], standalone_mode=False)


def test_texts_longer_than_the_context_are_written() -> None:
    torch.manual_seed(0)
    model = SmallTransformer(3, context=4, width=8, layers=1, heads=1).eval()
    assert len(continued(model, torch.tensor([0]), characters=20, temperature=1.0, seed=0)) == 21


# --- what a finished run has learned ----------------------------------------------------------------------------


def test_a_run_gives_its_model_back(run: Path) -> None:
    trained = load_trained(run)
    assert not trained.model.training and trained.workload.name == "shakespeare"
    inputs, targets = trained.workload.test[:]  # type: ignore[index]
    with torch.no_grad():
        loss = float(trained.workload.loss(trained.model(inputs), targets))
    assert loss < 0.7


def test_what_is_no_finished_run_is_told(run: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"it has no experiment\.toml"):
        load_trained(tmp_path)
    (tmp_path / "experiment.toml").write_bytes((run / "experiment.toml").read_bytes())
    with pytest.raises(ConfigError, match=r"has no model.safetensors: it is not finished"):
        load_trained(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"damaged")
    with pytest.raises(RunError, match="can't be read"):
        load_trained(tmp_path)


def test_a_model_that_does_not_fit_any_more_is_told(run: Path, tmp_path: Path) -> None:
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / "tinyshakespeare.txt").write_text("fewer letters. " * 200)
    with pytest.raises(RunError, match="can't be used with the model that shakespeare has now"):
        load_trained(run, data=str(tmp_path))
