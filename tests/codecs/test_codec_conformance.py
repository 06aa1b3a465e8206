"""Every built-in codec passes the kit; one that has no class here fails the build."""

from __future__ import annotations

from typing import Any

from minga.codecs import CODECS, BFloat16, Codec, Half, Int4, Int8, Plain, PowerSGD, RandomK, Sign, TopK
from minga.testing import CodecConformance, FeedbackCodecConformance, UnbiasedCodecConformance


def kit(
    name: str, codec: Codec, base: type[CodecConformance] = CodecConformance, **more: Any
) -> type[CodecConformance]:
    return type(f"Test_{name}", (base,), {"make": lambda self: codec, **more})


TestPlain = kit("plain", Plain())
TestHalf = kit("half", Half())
TestBFloat16 = kit("bfloat16", BFloat16())
TestInt8 = kit("int8", Int8(), UnbiasedCodecConformance)
TestInt8InSmallBlocks = kit("int8_small_blocks", Int8(block=8), UnbiasedCodecConformance)
TestInt4 = kit("int4", Int4(), FeedbackCodecConformance)
TestInt4RoundedAtRandom = kit("int4_random", Int4(rounding="stochastic", feedback=False), UnbiasedCodecConformance)
TestInt8WithFeedback = kit("int8_feedback", Int8(rounding="nearest", feedback=True), FeedbackCodecConformance)
TestSign = kit("sign", Sign(), FeedbackCodecConformance)
TestSignInLargeBlocks = kit("sign_large_blocks", Sign(block=4096), FeedbackCodecConformance)
TestTopK = kit("top_k", TopK(ratio=0.05), FeedbackCodecConformance, exact=True)
TestTopKExactly = kit("top_k_exactly", TopK(ratio=0.05, selection="exact"), FeedbackCodecConformance, exact=True)
TestRandomK = kit("random_k", RandomK(ratio=0.05), FeedbackCodecConformance, exact=True)
TestRandomKWithoutFeedback = kit("random_k_scaled", RandomK(ratio=0.2, feedback=False), UnbiasedCodecConformance)
TestPowerSGD = kit("power_sgd", PowerSGD(), FeedbackCodecConformance)
TestPowerSGDInBytes = kit("power_sgd_int8", PowerSGD(rank=4, factors="int8"), FeedbackCodecConformance)
TestPowerSGDOfRankOne = kit("power_sgd_1", PowerSGD(rank=1), FeedbackCodecConformance)


def test_every_codec_with_feedback_is_tested_for_it() -> None:
    for name, value in globals().items():
        if name.startswith("Test") and getattr(value().make(), "feedback", False):
            assert issubclass(value, FeedbackCodecConformance), name


def test_every_codec_is_tested() -> None:
    tested = {type(value().make()) for name, value in globals().items() if name.startswith("Test")}
    assert {preset.cls for preset in CODECS.values()} <= tested
