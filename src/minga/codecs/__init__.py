"""The form that vectors have on the wire: `minga train digits --nodes 2 --strategy ring --codec half`.

A new codec is a file here and a line in `CODECS`.
"""

from __future__ import annotations

from minga.base.spec import Preset, register
from minga.codecs.base import BiasedCodec, Codec
from minga.codecs.half import BFloat16, Half
from minga.codecs.integers import Int4, Int8
from minga.codecs.plain import Plain
from minga.codecs.power_sgd import PowerSGD
from minga.codecs.random_k import RandomK
from minga.codecs.sign import Sign
from minga.codecs.stream import Stream
from minga.codecs.top_k import TopK

__all__ = [
    "CODECS",
    "BFloat16",
    "BiasedCodec",
    "Codec",
    "Half",
    "Int4",
    "Int8",
    "Plain",
    "PowerSGD",
    "RandomK",
    "Sign",
    "Stream",
    "TopK",
]

CODECS: dict[str, Preset] = {
    "none": Preset(Plain),
    "half": Preset(Half),
    "bfloat16": Preset(BFloat16),
    "int8": Preset(Int8),
    "int4": Preset(Int4),
    "sign": Preset(Sign),
    "top_k": Preset(TopK),
    "random_k": Preset(RandomK),
    "power_sgd": Preset(PowerSGD),
}

register(Codec, CODECS)
