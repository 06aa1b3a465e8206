"""The networks of the built-in workloads have the sizes that they say, and take the pictures that they say."""

from __future__ import annotations

import re

import pytest
import torch
from torch import nn

from minga.workloads.cifar10 import VggLike
from minga.workloads.models import (
    DigitsNet,
    LeNet5,
    MultilayerPerceptron,
    NielsenNet,
    ResNet34,
    SmallConvNet,
    SmallResNet,
    SmallTransformer,
)
from minga.workloads.tasks import Autoencoder

MODELS = [DigitsNet, LeNet5, NielsenNet, MultilayerPerceptron, SmallConvNet, SmallResNet]
SIDES = dict.fromkeys(MODELS, 28) | {DigitsNet: 8}


def count(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize(
    ("model", "parameters"),
    [
        (DigitsNet, 18_408),
        (LeNet5, 61_706),
        (SmallConvNet, 421_642),
        (SmallResNet, 603_498),
        (SmallTransformer, 421_697),
        (NielsenNet, 289_630),
        (MultilayerPerceptron, 235_146),
        (Autoencoder, 18_760),
        (VggLike, 29_587_082),
        (ResNet34, 21_283_017),
    ],
)
def test_the_number_of_parameters_is_known(model: type[nn.Module], parameters: int) -> None:
    assert count(model()) == parameters


@pytest.mark.parametrize("model", [*MODELS, SmallTransformer, Autoencoder, VggLike, ResNet34])
def test_the_docstring_has_the_number_of_parameters(model: type[nn.Module]) -> None:
    written = re.search(r"([\d,]+) parameters", model.__doc__ or "")
    assert written is not None and int(written[1].replace(",", "")) == count(model())


@pytest.mark.parametrize("model", MODELS)
def test_the_docstring_has_the_size_of_the_pictures(model: type[nn.Module]) -> None:
    assert f"{SIDES[model]}x{SIDES[model]}" in (model.__doc__ or "")


@pytest.mark.parametrize("samples", [2, 5])
@pytest.mark.parametrize("model", MODELS)
def test_a_picture_gets_a_value_for_each_of_ten_classes(model: type[nn.Module], samples: int) -> None:
    side = SIDES[model]
    assert model()(torch.randn(samples, 1, side, side)).shape == (samples, 10)


@pytest.mark.parametrize("model", MODELS)
def test_every_parameter_gets_a_gradient(model: type[nn.Module]) -> None:
    network = model()
    network(torch.randn(4, 1, SIDES[model], SIDES[model])).square().sum().backward()
    gradients = {name: parameter.grad for name, parameter in network.named_parameters()}
    assert [name for name, gradient in gradients.items() if gradient is None or not gradient.any()] == []


@pytest.mark.parametrize("model", MODELS)
def test_a_seed_decides_the_initial_parameters(model: type[nn.Module]) -> None:
    def make(seed: int) -> nn.Module:
        torch.manual_seed(seed)
        return model()

    assert all(torch.equal(a, b) for a, b in zip(make(1).parameters(), make(1).parameters(), strict=True))
    assert not torch.equal(next(make(1).parameters()), next(make(2).parameters()))


def test_width_and_classes_of_the_residual_network_can_be_chosen() -> None:
    network = SmallResNet(width=4, classes=3)
    assert network(torch.randn(2, 1, 28, 28)).shape == (2, 3)
    assert count(network) < count(SmallResNet()) / 30


# --- the transformer ---------------------------------------------------------------------------------------------


def small_transformer() -> SmallTransformer:
    torch.manual_seed(0)
    return SmallTransformer(7, context=6, width=8, layers=2, heads=2)


def test_every_place_of_a_text_gets_a_value_for_each_character() -> None:
    assert small_transformer()(torch.randint(0, 7, (3, 6))).shape == (3, 6, 7)


def test_a_text_may_be_shorter_than_the_context() -> None:
    assert small_transformer()(torch.randint(0, 7, (3, 2))).shape == (3, 2, 7)


def test_no_place_sees_what_comes_after_it() -> None:
    network = small_transformer()
    text = torch.tensor([[0, 1, 2, 3, 4, 5]])
    other = torch.tensor([[0, 1, 2, 6, 6, 6]])
    outputs, outputs_of_other = network(text), network(other)
    torch.testing.assert_close(outputs[:, :3], outputs_of_other[:, :3])
    assert not torch.allclose(outputs[:, 3:], outputs_of_other[:, 3:])


def test_a_place_sees_what_comes_before_it() -> None:
    network = small_transformer()
    last = network(torch.tensor([[0, 1, 2, 3, 4, 5]]))[:, -1]
    assert not torch.allclose(last, network(torch.tensor([[6, 1, 2, 3, 4, 5]]))[:, -1])


def test_the_same_character_is_another_one_at_another_place() -> None:
    outputs = small_transformer()(torch.tensor([[3, 3, 3, 3, 3, 3]]))[0]
    assert not torch.allclose(outputs[0], outputs[1])


def test_every_parameter_of_the_transformer_gets_a_gradient() -> None:
    network = small_transformer()
    network(torch.randint(0, 7, (4, 6))).square().sum().backward()
    gradients = {name: parameter.grad for name, parameter in network.named_parameters()}
    assert [name for name, gradient in gradients.items() if gradient is None or not gradient.any()] == []
