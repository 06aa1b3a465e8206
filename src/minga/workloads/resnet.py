"""ResNet-34 (He et al., arXiv:1512.03385), for pictures of any size."""

from __future__ import annotations

from torch import nn

from minga.workloads.models import ResidualBlock

__all__ = ["ResNet34"]


class ResNet34(nn.Sequential):
    """34 layers for grey pictures, such as 197x148 ones of 9 classes: 21,283,017 parameters."""

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
