"""The built-in workloads: `minga train digits`, `minga train mnist --data DIR`; `minga workloads` lists them.

The first line of each function's docstring is what that list says of it.
"""

from __future__ import annotations

import ast
import importlib.util
import pkgutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from minga.errors import unknown

if TYPE_CHECKING:
    from minga.runs.workload import Workload

__all__ = ["WORKLOADS", "BuiltIn", "built_in"]


@dataclass(frozen=True)
class BuiltIn:
    """A function of this room that makes a workload of a directory with data; imported when it is called."""

    home: str
    """`module:function`."""

    def __call__(self, data: Path | None = None) -> Workload:
        made: Workload = pkgutil.resolve_name(f"{__name__}.{self.home}")(data)
        return made

    @property
    def about(self) -> str:
        """The first line of its docstring, read without importing what it needs."""
        module, _, function = self.home.partition(":")
        found = importlib.util.find_spec(f"{__name__}.{module}")
        assert found is not None and found.origin is not None
        for node in ast.parse(Path(found.origin).read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef) and node.name == function:
                return (ast.get_docstring(node) or "").partition("\n")[0]
        raise AssertionError(f"there is no {self.home}")


WORKLOADS: dict[str, BuiltIn] = {
    "digits": BuiltIn("digits:digits"),
    "digits-labels": BuiltIn("tasks:digits_labels"),
    "digits-autoencoder": BuiltIn("tasks:digits_autoencoder"),
    "friedman": BuiltIn("tasks:friedman"),
    "counting": BuiltIn("tasks:counting"),
    "mnist": BuiltIn("mnist:mnist_lenet5"),
    "mnist-lenet5": BuiltIn("mnist:mnist_lenet5"),
    "mnist-lenet5-adam": BuiltIn("mnist:mnist_lenet5_adam"),
    "mnist-nielsen": BuiltIn("mnist:mnist_nielsen"),
    "mnist-mlp": BuiltIn("mnist:mnist_mlp"),
    "mnist-cnn": BuiltIn("mnist:mnist_cnn"),
    "mnist-resnet": BuiltIn("mnist:mnist_resnet"),
    "fashion-mnist": BuiltIn("mnist:fashion_mnist_lenet5"),
    "fashion-mnist-lenet5": BuiltIn("mnist:fashion_mnist_lenet5"),
    "fashion-mnist-cnn": BuiltIn("mnist:fashion_mnist_cnn"),
    "fashion-mnist-resnet": BuiltIn("mnist:fashion_mnist_resnet"),
    "cifar10-vgg": BuiltIn("cifar10:cifar10_vgg"),
    "fish-resnet34": BuiltIn("fish:fish_resnet34"),
    "flickr8k-captions": BuiltIn("captions.workload:flickr8k_captions"),
    "shakespeare": BuiltIn("text:shakespeare"),
    "shakespeare-gpt": BuiltIn("text:shakespeare_gpt"),
}


def built_in(name: str, data: Path | None) -> Workload:
    """The built-in workload of that name."""
    if name not in WORKLOADS:
        raise unknown("workload", name, WORKLOADS, "A workload of your own: file.py:name.")
    return WORKLOADS[name](data)
