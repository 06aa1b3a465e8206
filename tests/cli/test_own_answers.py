"""`minga write` and `minga caption` with workloads of one's own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from PIL import Image

import minga
from minga.cli.main import application
from minga.errors import ConfigError, DataError

PAGE = (Path(__file__).parents[2] / "docs" / "workloads.md").read_text()
ALPHABET = PAGE.split("## From a raw thing to an answer")[1].split("```python\n")[1].split("```")[0]

LIGHT = """
import torch
from torch import nn
from torch.utils.data import TensorDataset

from minga import Workload


def light():
    generator = torch.Generator().manual_seed(0)
    pictures = torch.rand(200, 3, 4, 4, generator=generator) / 2
    bright = torch.arange(200) % 2
    pictures += bright.view(-1, 1, 1, 1) / 2
    return Workload(
        name="light",
        model=lambda: nn.Sequential(nn.Flatten(), nn.Linear(48, 2)),
        train=TensorDataset(pictures, bright),
        present=lambda scores: ["it is dark", "it is bright"][int(scores.argmax())],
    )
"""


def trained(folder: Path, source: str, name: str) -> str:
    (folder / f"{name}.py").write_text(source)
    experiment = minga.Experiment(workload=f"{folder}/{name}.py:{name}", runs=str(folder / "runs"))
    return minga.run(experiment).run


@pytest.fixture(scope="module")
def alphabet(tmp_path_factory: pytest.TempPathFactory) -> str:
    return trained(tmp_path_factory.mktemp("alphabet"), ALPHABET, "alphabet")


@pytest.fixture(scope="module")
def light(tmp_path_factory: pytest.TempPathFactory) -> str:
    return trained(tmp_path_factory.mktemp("light"), LIGHT, "light")


def test_the_example_of_the_page_writes(alphabet: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["write", alphabet, "--prompt", "ab", "--characters", "3", "--temperature", "0"]
    application(words, standalone_mode=False)
    assert capsys.readouterr().out == "abcde\n"
    application([*words, "--json"], standalone_mode=False)
    assert json.loads(capsys.readouterr().out) == {"run": alphabet, "prompt": "ab", "text": "abcde"}


def test_photographs_are_told_of_by_any_workload_that_makes_text(
    light: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Image.new("RGB", (30, 20), (255, 250, 240)).save(tmp_path / "noon.png")
    Image.new("L", (20, 30), 10).save(tmp_path / "night.png")
    files = [str(tmp_path / name) for name in ("noon.png", "night.png")]
    application(["caption", *files, "--run", light, "--json"], standalone_mode=False)
    assert json.loads(capsys.readouterr().out) == dict(zip(files, ["it is bright", "it is dark"], strict=True))


def test_what_gives_no_text_is_refused(alphabet: str, light: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"light\.py:light, which writes no text; give another run"):
        application(["write", light], standalone_mode=False)
    with pytest.raises(ConfigError, match=r"unknown split 'test'; known: none"):
        application(["caption", "--score", "test", "--run", light], standalone_mode=False)
    run = minga.run(minga.Experiment(workload="digits", training=minga.Training(steps=2), runs=str(tmp_path))).run
    for words in (["dog.jpg"], ["--score", "test"]):
        with pytest.raises(ConfigError, match="trained digits, which tells no captions; give another run"):
            application(["caption", *words, "--run", run], standalone_mode=False)
    with pytest.raises(DataError, match="a prompt is a text"):
        application(["caption", "dog.jpg", "--run", counting(tmp_path)], standalone_mode=False)


def counting(place: Path) -> str:
    experiment = minga.Experiment(workload="counting", training=minga.Training(steps=2), runs=str(place))
    return minga.run(experiment).run
