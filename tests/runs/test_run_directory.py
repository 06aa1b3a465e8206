"""What a run leaves behind."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from minga.errors import ConfigError, RunError
from minga.runs.directory import alone_in, save_model


def test_a_model_that_can_not_be_written_is_told_with_what_to_do_and_the_old_one_stays(tmp_path: Path) -> None:
    model = nn.Linear(2, 1)
    save_model(tmp_path, model)
    (tmp_path / "model.safetensors.unfinished").mkdir()  # in the way, as a full disk is
    with pytest.raises(RunError, match=r"can't write .*model\.safetensors: .*minga train --resume"):
        save_model(tmp_path, nn.Linear(2, 1))
    assert torch.equal(load_file(tmp_path / "model.safetensors")["weight"], model.weight)


def test_a_directory_that_can_not_be_written_to_is_told_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "lock").mkdir()  # in the way, as a disk that can only be read is
    with pytest.raises(ConfigError, match=r"can't write in .* make it writable, or copy it"), alone_in(tmp_path):
        pass
