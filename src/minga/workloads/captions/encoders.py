"""From photographs to features: by VGG16 where torchvision is installed, by any module of one's own, or from a file.

features = Features.read(find_features(Path("data/flickr8k")))
features.of(["1000268201_693b08cb0e.jpg"])             # 1 x 1280
encoder = load_encoder("vgg16")                        # 4,096 numbers, as in the thesis
encoder = load_encoder("my_encoder.py:encoder")        # any nn.Module, or a function that makes one
features = encode(encoder, [Path("dog.jpg")])
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from minga.base.user_files import load_from_file
from minga.data.formats.base import BadSample
from minga.data.formats.captions import read_features
from minga.data.formats.shaping import in_8_bits, open_picture
from minga.errors import ConfigError, DataError, unknown

__all__ = ["ENCODERS", "Encoder", "Features", "encode", "load_encoder", "read_colour", "save_features"]

# What networks for ImageNet expect.
_SIDE = 224
_MEAN = (0.485, 0.456, 0.406)
_DEVIATION = (0.229, 0.224, 0.225)


@dataclass(frozen=True)
class Features:
    """Photographs as an encoder sees them: a row for each name. In a file they are `names` and `feats` of an .npz."""

    names: list[str]
    vectors: Tensor

    @classmethod
    def read(cls, path: Path) -> Features:
        """Those of a file."""
        names, vectors = read_features(path)
        return cls(names, torch.from_numpy(vectors))

    @property
    def width(self) -> int:
        return int(self.vectors.shape[1])

    def of(self, names: list[str]) -> Tensor:
        """Their rows; `DataError` for a photograph that has none."""
        place = {name: at for at, name in enumerate(self.names)}
        missing = [name for name in names if name not in place]
        if missing:
            raise DataError(
                f"there are no features of {missing[0]}{f' and {len(missing) - 1} others' if missing[1:] else ''}; "
                "compute them for all photographs"
            )
        return self.vectors[torch.tensor([place[name] for name in names], dtype=torch.int64)]


@dataclass(frozen=True)
class Encoder:
    """A network that sees, and how a picture is made ready for it."""

    name: str
    module: nn.Module
    prepare: Callable[[Path], Tensor]


def read_colour(path: Path) -> Tensor:
    """A picture as 3 x 224 x 224, scaled as networks for ImageNet want it: the shorter side to 256, then the middle."""
    try:
        colour = in_8_bits(open_picture(path)).convert("RGB")
    except BadSample as bad:
        raise DataError(f"{path} can't be read as a picture ({bad}); give another") from bad
    from PIL.Image import Resampling

    scale = 256 / min(colour.size)
    width, height = (max(_SIDE, round(scale * side)) for side in colour.size)
    left, top = (width - _SIDE) // 2, (height - _SIDE) // 2
    scaled = colour.resize((width, height), Resampling.BILINEAR)
    values = np.asarray(scaled.crop((left, top, left + _SIDE, top + _SIDE)), dtype=np.float32) / 255.0
    mean, deviation = torch.tensor(_MEAN).view(3, 1, 1), torch.tensor(_DEVIATION).view(3, 1, 1)
    return (torch.from_numpy(values).permute(2, 0, 1) - mean) / deviation


def _vgg16() -> nn.Module:
    """VGG16 without its last layer."""
    try:
        from torchvision.models import VGG16_Weights, vgg16  # type: ignore[import-not-found,unused-ignore]
    except ImportError as error:
        raise ConfigError(
            "the encoder vgg16 is torchvision's, which is not installed; install it, or give one of your own: "
            "--encoder file.py:encoder"
        ) from error
    network: nn.Module = vgg16(weights=VGG16_Weights.IMAGENET1K_V1)
    classifier: Any = network.classifier
    network.classifier = nn.Sequential(*list(classifier)[:-1])
    return network


ENCODERS: dict[str, Callable[[], nn.Module]] = {"vgg16": _vgg16}


def load_encoder(reference: str) -> Encoder:
    """The encoder behind a name or `file.py:name`; a module may have a `prepare(path)` of its own."""
    if ".py" in reference:
        found = load_from_file(reference if ":" in reference else f"{reference}:encoder")
        module = found() if inspect.isfunction(found) or inspect.isclass(found) else found
        if not isinstance(module, nn.Module):
            raise ConfigError(f"{reference} is a {type(module).__name__}, not a torch.nn.Module or what makes one")
    elif reference in ENCODERS:
        module = ENCODERS[reference]()
    else:
        raise unknown("encoder", reference, ENCODERS, "One of your own: file.py:encoder.")
    return Encoder(reference, module.eval(), getattr(module, "prepare", read_colour))


def encode(
    encoder: Encoder,
    pictures: Sequence[Path],
    *,
    batch: int = 16,
    done: Callable[[int], None] = lambda count: None,
    skipped: dict[str, str] | None = None,
) -> Features:
    """A row for each picture; `done` is told how many there are.

    `skipped`: gets the names of those that can't be used, with the reason; without it, the first of them ends the work.
    """
    names: list[str] = []
    rows = []
    with torch.no_grad():
        for at in range(0, len(pictures), batch):
            prepared: list[tuple[str, Tensor]] = []  # files of several folders may have the same name
            for path in pictures[at : at + batch]:
                try:
                    prepared.append((path.name, encoder.prepare(path)))
                except DataError as error:
                    if skipped is None:
                        raise
                    skipped[path.name] = str(error)
            if prepared:
                names += [name for name, _ in prepared]
                rows.append(encoder.module(torch.stack([each for _, each in prepared])).flatten(1).float())
                bad = (~rows[-1].isfinite().all(dim=1)).nonzero().flatten().tolist()
                if bad:
                    raise DataError(f"the encoder {encoder.name} makes NaN or infinite values of {prepared[bad[0]][0]}")
            done(min(at + batch, len(pictures)))
    if not rows:
        first = next(iter((skipped or {}).values()), "there are none")
        raise DataError(f"not one of {len(pictures):,} pictures can be used: {first}")
    return Features(names, torch.cat(rows))


def save_features(path: Path, features: Features, encoder: str) -> None:
    """As `read_features` reads them: in float16 if that can hold them."""
    half = features.vectors.half()
    kept = half if bool(half.isfinite().all()) else features.vectors.float()
    np.savez_compressed(path, names=np.array(features.names), feats=kept.numpy(), encoder=np.array(encoder))
