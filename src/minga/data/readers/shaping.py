"""Pictures brought to one size and number of channels: bytes, channels x height x width."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from minga.data.readers.base import BadSample, Picture
from minga.errors import DataError

if TYPE_CHECKING:
    from PIL.Image import Image

__all__ = ["pillow", "shape_array", "shape_image"]


def pillow() -> Any:
    """The library that knows pictures."""
    try:
        import PIL.Image
    except ImportError:
        raise DataError("reading or resizing pictures needs Pillow: pip install 'minga[images]'") from None
    return PIL.Image


def shape_image(image: Image, wanted: Picture) -> NDArray[np.uint8]:
    """An opened picture in the shape that is wanted."""
    image = image.convert("L" if wanted.grey else "RGB")
    if wanted.width is not None and wanted.height is not None:
        # Each pixel of the smaller picture is a mean of those it stands for, as far as it goes.
        image = image.resize((wanted.width, wanted.height), pillow().Resampling.BILINEAR, reducing_gap=None)
    array: NDArray[np.uint8] = np.asarray(image, dtype=np.uint8)
    return array[None] if wanted.grey else np.ascontiguousarray(array.transpose(2, 0, 1))


def shape_array(pixels: NDArray[np.uint8], wanted: Picture) -> NDArray[np.uint8]:
    """Pixels that were in an array, channels x height x width; one that has the shape already is left alone."""
    channels, height, width = pixels.shape
    resized = wanted.width is not None and (wanted.width, wanted.height) != (width, height)
    if not resized and (not wanted.grey or channels == 1):
        return pixels
    if channels not in (1, 3):
        raise BadSample(f"it has {channels} channels; 1 or 3 can be resized")
    image = pillow().fromarray(pixels[0] if channels == 1 else np.ascontiguousarray(pixels.transpose(1, 2, 0)))
    grey = wanted.grey or channels == 1
    return shape_image(image, Picture(width=wanted.width, height=wanted.height, grey=grey))
