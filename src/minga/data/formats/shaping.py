"""Pictures brought to one size and number of channels: bytes, channels x height x width."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from minga.data.formats.base import BadSample, PictureShape
from minga.errors import DataError

if TYPE_CHECKING:
    from PIL.Image import Image

__all__ = ["in_8_bits", "open_picture", "shape_array", "shape_image"]


def open_picture(path: Path) -> Image:
    """A picture, loaded, as people see it; `BadSample` if it can't be used."""
    library = _pillow()
    try:
        with library.open(path) as image:
            pixels = image.width * image.height
            if library.MAX_IMAGE_PIXELS is not None and pixels > library.MAX_IMAGE_PIXELS:
                raise BadSample(f"it has {pixels:,} pixels, suspiciously many; make it smaller")
            return _upright(image)
    except (OSError, SyntaxError, ValueError, Warning, library.DecompressionBombError, EOFError) as error:
        raise BadSample(f"it can't be read: {error}") from None


def _pillow() -> Any:
    """The library that knows pictures."""
    try:
        import PIL.Image
    except ImportError:
        raise DataError("reading or resizing pictures needs Pillow: pip install 'minga[images]'") from None
    return PIL.Image


def _upright(image: Image) -> Image:
    """Cameras note down how they were held instead of turning pixels."""
    from PIL import ImageOps

    image.load()
    try:
        return ImageOps.exif_transpose(image)
    except (SyntaxError, ValueError, KeyError, TypeError, OverflowError, struct.error, Warning):
        return image  # its notes are damaged, its pixels are not


def in_8_bits(image: Image) -> Image:
    """The same with values from 0 to 255, as they are meant; Pillow's own conversion cuts off what is above."""
    if image.mode.startswith("I;16"):
        values = np.asarray(image).astype(np.float32) / 257
        converted: Image = _pillow().fromarray(np.rint(values).astype(np.uint8))
        return converted
    if image.mode in ("I", "F"):
        values = np.asarray(image)
        if not np.array_equal(values, np.clip(np.rint(values), 0, 255)):
            raise BadSample(
                f"its values (mode {image.mode}) are from {values.min():g} to {values.max():g}, and not whole numbers "
                "from 0 to 255; save it with 8 or 16 bits"
            )
    return image


def shape_image(image: Image, wanted: PictureShape) -> NDArray[np.uint8]:
    """An opened picture in the shape that is wanted."""
    image = in_8_bits(image).convert("L" if wanted.grey else "RGB")
    if wanted.width is not None and wanted.height is not None:
        # Each pixel of the smaller picture is a mean of those it stands for, as far as it goes.
        image = image.resize((wanted.width, wanted.height), _pillow().Resampling.BILINEAR, reducing_gap=None)
    array: NDArray[np.uint8] = np.asarray(image, dtype=np.uint8)
    return array[None] if wanted.grey else np.ascontiguousarray(array.transpose(2, 0, 1))


def shape_array(pixels: NDArray[np.uint8], wanted: PictureShape) -> NDArray[np.uint8]:
    """Pixels that were in an array, channels x height x width; one that has the shape already is left alone."""
    channels, height, width = pixels.shape
    resized = wanted.width is not None and (wanted.width, wanted.height) != (width, height)
    if not resized and (not wanted.grey or channels == 1):
        return pixels
    if channels not in (1, 3):
        raise BadSample(f"it has {channels} channels; 1 or 3 can be resized")
    image = _pillow().fromarray(pixels[0] if channels == 1 else np.ascontiguousarray(pixels.transpose(1, 2, 0)))
    grey = wanted.grey or channels == 1
    return shape_image(image, PictureShape(width=wanted.width, height=wanted.height, grey=grey))
