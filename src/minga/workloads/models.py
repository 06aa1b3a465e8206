"""The networks of the built-in workloads."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

__all__ = [
    "DigitsNet",
    "LeNet5",
    "MultilayerPerceptron",
    "NielsenNet",
    "ResNet34",
    "SmallConvNet",
    "SmallResNet",
    "SmallTransformer",
]


class DigitsNet(nn.Sequential):
    """Two convolutions and two dense layers for pictures of 8x8: 18,408 parameters."""

    def __init__(self) -> None:
        super().__init__(
            nn.Conv2d(1, 16, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(16, 32, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(512, 26),
            nn.ReLU(),
            nn.Linear(26, 10),
        )


class LeNet5(nn.Sequential):
    """LeNet-5 for pictures of 28x28, with tanh and max pooling: 61,706 parameters."""

    def __init__(self) -> None:
        super().__init__(
            nn.Conv2d(1, 6, 5, padding=2),
            nn.Tanh(),
            nn.MaxPool2d(2),
            nn.Conv2d(6, 16, 5),
            nn.Tanh(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(400, 120),
            nn.Tanh(),
            nn.Linear(120, 84),
            nn.Tanh(),
            nn.Linear(84, 10),
        )


class NielsenNet(nn.Sequential):
    """The network of Nielsen's book for pictures of 28x28, with sigmoids: 289,630 parameters."""

    def __init__(self) -> None:
        super().__init__(
            nn.Conv2d(1, 20, 5),
            nn.Sigmoid(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(2880, 100),
            nn.Sigmoid(),
            nn.Linear(100, 10),
        )


class MultilayerPerceptron(nn.Sequential):
    """Three dense layers for pictures of 28x28: 235,146 parameters."""

    def __init__(self) -> None:
        super().__init__(
            nn.Flatten(), nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 10)
        )


class SmallConvNet(nn.Sequential):
    """Two convolutions and two dense layers for pictures of 28x28: 421,642 parameters, most of them in one layer."""

    def __init__(self) -> None:
        super().__init__(
            nn.Conv2d(1, 32, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(32, 64, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(3136, 128),
            nn.ReLU(),
            nn.Linear(128, 10),
        )


class ResidualBlock(nn.Module):
    """Two convolutions with batch norm and a way around them."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.straight = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(),
            nn.Conv2d(outputs, outputs, 3, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
        )
        self.around: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.around = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride=stride, bias=False), nn.BatchNorm2d(outputs)
            )
        self.activation = nn.ReLU()

    def forward(self, inputs: Tensor) -> Tensor:
        result: Tensor = self.activation(self.straight(inputs) + self.around(inputs))
        return result


class SmallResNet(nn.Sequential):
    """A residual network for pictures of 28x28 with one channel: 603,498 parameters."""

    def __init__(self, width: int = 32, classes: int = 10) -> None:
        super().__init__(
            nn.Conv2d(1, width, 3, stride=2, padding=1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            ResidualBlock(width, width, 1),
            ResidualBlock(width, 2 * width, 2),
            ResidualBlock(2 * width, 4 * width, 2),
            ResidualBlock(4 * width, 4 * width, 1),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(4 * width, classes),
        )


class ResNet34(nn.Sequential):
    """34 layers (He et al., arXiv:1512.03385), 21,283,017 parameters for grey pictures of any size and 9 classes."""

    def __init__(self, classes: int = 9, *, channels: int = 1) -> None:
        widths, depths = (64, 128, 256, 512), (3, 4, 6, 3)
        blocks = []
        for inputs, width, depth in zip((64, *widths), widths, depths, strict=False):
            # The first block of each stage but the first halves the picture.
            blocks.append(ResidualBlock(inputs, width, 1 if width == inputs else 2))
            blocks += [ResidualBlock(width, width, 1) for _ in range(depth - 1)]
        super().__init__(
            nn.Conv2d(channels, 64, 7, stride=2, padding=3, bias=False),
            nn.BatchNorm2d(64),
            nn.ReLU(),
            nn.MaxPool2d(3, stride=2, padding=1),
            *blocks,
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(512, classes),
        )
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")


class _Layer(nn.Module):
    """Attention to what came before, then a dense network for each place; both with a way around them."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.dropout = nn.Dropout(dropout)
        self.before_attention = nn.LayerNorm(width)
        self.queries_keys_values = nn.Linear(width, 3 * width)
        self.attended = nn.Linear(width, width)
        self.dense = nn.Sequential(
            nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, inputs: Tensor) -> Tensor:
        samples, length, width = inputs.shape
        projected = self.queries_keys_values(self.before_attention(inputs))
        # Samples x heads x places x width of a head, once for each of the three.
        queries, keys, values = (
            part.view(samples, length, self.heads, -1).transpose(1, 2) for part in projected.split(width, dim=2)
        )
        seen = scaled_dot_product_attention(queries, keys, values, is_causal=True)
        inputs = inputs + self.dropout(self.attended(seen.transpose(1, 2).reshape(samples, length, width)))
        result: Tensor = inputs + self.dropout(self.dense(inputs))
        return result


class SmallTransformer(nn.Module):
    """A decoder that tells the next character at each place: 421,697 parameters for 65 characters."""

    def __init__(
        self,
        characters: int = 65,
        *,
        context: int = 64,
        width: int = 128,
        layers: int = 2,
        heads: int = 4,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.context = context
        self.characters = nn.Embedding(characters, width)
        self.places = nn.Embedding(context, width)
        self.layers = nn.Sequential(*(_Layer(width, heads, dropout) for _ in range(layers)))
        self.outputs = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, characters))
        for embedding in (self.characters, self.places):
            nn.init.normal_(embedding.weight, std=0.02)

    def forward(self, inputs: Tensor) -> Tensor:
        places = torch.arange(inputs.shape[1], device=inputs.device)
        result: Tensor = self.outputs(self.layers(self.characters(inputs) + self.places(places)))
        return result
