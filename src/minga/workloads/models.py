"""The networks of the built-in workloads."""

from __future__ import annotations

from torch import Tensor, nn

__all__ = ["DigitsNet", "LeNet5", "SmallResNet"]


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


class _Block(nn.Module):
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
            _Block(width, width, 1),
            _Block(width, 2 * width, 2),
            _Block(2 * width, 4 * width, 2),
            _Block(4 * width, 4 * width, 1),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(4 * width, classes),
        )
