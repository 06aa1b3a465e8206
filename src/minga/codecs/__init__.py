"""The form that vectors have on the wire: `minga train digits --nodes 2 --strategy ring --codec half`.

A new codec is a file here and a line in `CODECS`.
"""

from __future__ import annotations

from minga.codecs.base import BiasedCodec, Codec
from minga.codecs.half import BFloat16, Half
from minga.codecs.plain import Plain
from minga.codecs.stream import Stream
from minga.spec import Preset, register

__all__ = ["CODECS", "BFloat16", "BiasedCodec", "Codec", "Half", "Plain", "Stream"]

CODECS: dict[str, Preset] = {
    "none": Preset(Plain),
    "half": Preset(Half),
    "bfloat16": Preset(BFloat16),
}

register(Codec, CODECS)
