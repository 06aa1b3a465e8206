"""Modules that are imported at the first use: the same objects afterwards, nothing before."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from minga.base import lazy


def test_what_it_gives_is_the_modules_own() -> None:
    assert lazy.torch.zeros is torch.zeros
    assert vars(lazy.torch)["zeros"] is torch.zeros, "kept, so that the next use costs what the module's own does"
    assert lazy.nn.Linear is torch.nn.Linear
    with pytest.raises(AttributeError, match="nonsense"):
        lazy.torch.nonsense  # type: ignore[attr-defined]  # noqa: B018


def test_tensors_are_known() -> None:
    assert isinstance(torch.zeros(1), lazy.Tensor)
    assert isinstance(torch.nn.Parameter(torch.zeros(1)), lazy.Tensor | str)
    assert not isinstance([0.0], lazy.Tensor)


def test_nothing_is_imported_before_the_first_use() -> None:
    program = """
import inspect, sys
from minga.base.lazy import Tensor, nn, np, torch
inspect.getmodule(torch), hasattr(torch, "__wrapped__"), isinstance(3, Tensor), repr(torch)
assert not {"torch", "numpy"} & set(sys.modules)
assert np.float32(1) == 1 and "numpy" in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True)
