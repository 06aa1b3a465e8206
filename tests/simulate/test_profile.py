"""Profiles: measured, kept, read again, and used between what was measured."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
import torch

from minga.codecs import Half, Int8, Plain, TopK
from minga.errors import ConfigError
from minga.runs.workload import load_workload
from minga.simulate.profile import CodecCost, Compute, Layer, Profile, load_profile, save_profile
from minga.simulate.profiling import measure_profile

PROFILE = Profile(
    workload="made",
    layers=(Layer(name="a", shape=(3, 4), ready=0.5), Layer(name="b", shape=(8,))),
    compute=(Compute(batch=8, forward=2.0, backward=4.0, other=1.0), Compute(batch=16, forward=3.0, backward=6.0)),
    update_seconds=0.5,
    samples=100,
    codecs={"int8": CodecCost(encode=0.2, decode=0.1)},
    pass_seconds=0.05,
)


def test_between_two_batches_times_are_in_proportion() -> None:
    assert PROFILE.compute_of(12).forward == pytest.approx(2.5)
    assert PROFILE.compute_of(32).backward == pytest.approx(10.0)
    assert PROFILE.compute_of(1).forward == pytest.approx(1.125)
    assert PROFILE.compute_of(8) == PROFILE.compute[0]


def test_work_takes_its_share_of_the_whole_vector() -> None:
    assert PROFILE.parameters == 20
    assert PROFILE.seconds_to_encode(Int8(), 10) == pytest.approx(0.1)
    assert PROFILE.seconds_to_decode(Int8(), 20) == pytest.approx(0.1)
    assert PROFILE.seconds_of_update(5) == pytest.approx(0.125)
    assert PROFILE.seconds_to_encode(Plain(), 20) == 0
    with pytest.raises(ConfigError, match=r"no times for the codec half; .*minga profile made --codec 'half'"):
        PROFILE.seconds_to_encode(Half(), 20)


def test_a_profile_is_kept_and_read_again(tmp_path: Path) -> None:
    save_profile(PROFILE, tmp_path / "profile.json")
    assert load_profile(tmp_path / "profile.json") == PROFILE


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{", "no JSON: line 1"),
        ("[]", "no profile"),
        (json.dumps({"workload": "x"}), "profile needs a value for 'layers'"),
        (json.dumps({"wrokload": "x"}), "Did you mean 'workload'"),
    ],
)
def test_a_file_that_is_no_profile_is_told(text: str, told: str, tmp_path: Path) -> None:
    (tmp_path / "p.json").write_text(text)
    with pytest.raises(ConfigError, match=told):
        load_profile(tmp_path / "p.json")


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"samples": 0}, "samples: should be at least 1"),
        ({"dtype": "nn"}, "dtype: should be a type of torch"),
        ({"update_seconds": -1}, "update_seconds: should be seconds, 0 or more"),
        ({"spread": [0.0]}, "spread: should be times"),
        ({"layers": [{"name": "a", "shape": [0]}]}, "shape: should be lengths"),
        ({"layers": [{"name": "a", "shape": [2], "ready": 2}]}, "ready: should be a part"),
        ({"codecs": {"half": {"encode": -1, "decode": 0}}}, "encode: should be seconds"),
        ({"compute": [{"batch": 4, "forward": 1, "backward": 1}] * 2}, "each of them once"),
        ({"compute": [{"batch": 4, "forward": 0, "backward": 0}]}, "a step takes time"),
    ],
)
def test_a_profile_that_was_edited_badly_is_told(change: dict[str, Any], told: str, tmp_path: Path) -> None:
    save_profile(PROFILE, tmp_path / "p.json")
    table = json.loads((tmp_path / "p.json").read_text()) | change
    (tmp_path / "p.json").write_text(json.dumps(table))
    with pytest.raises(ConfigError, match=told):
        load_profile(tmp_path / "p.json")


def test_what_is_not_text_is_no_profile(tmp_path: Path) -> None:
    (tmp_path / "p.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="not even text"):
        load_profile(tmp_path / "p.json")


def test_a_falling_line_does_not_come_to_nothing() -> None:
    odd = dataclasses.replace(
        PROFILE, compute=(Compute(batch=8, forward=2.0, backward=1.0), Compute(batch=16, forward=1.0, backward=1.0))
    )
    assert odd.compute_of(100).forward == 1.0


def test_a_missing_file_is_told_with_what_makes_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="minga profile WORKLOAD"):
        load_profile(tmp_path / "nothing.json")


def test_batch_norm_is_measured_with_more_than_one_sample(tmp_path: Path) -> None:
    """33 samples would leave a single one for the last step of an epoch, which no node alone can normalise."""
    file = tmp_path / "odd.py"
    file.write_text(
        "import dataclasses\n"
        "from minga.testing.problems import blobs\n"
        "workload = dataclasses.replace(blobs(33, batch_norm=True), name='odd')\n"
    )
    profile = measure_profile(f"{file}:workload", batches=[1], codecs=[], seconds=0.1)
    assert [each.batch for each in profile.compute] == [2]
    assert profile.batch_norms == (7,)


def test_digits_measured_on_this_machine() -> None:
    before = torch.get_rng_state()
    profile = measure_profile("digits", batches=[16, 32], codecs=[Half(), TopK()], seconds=0.2)
    assert torch.equal(torch.get_rng_state(), before)
    workload = load_workload("digits", None)
    assert profile.parameters == sum(tensor.numel() for tensor in workload.model().parameters())
    assert [each.batch for each in profile.compute] == [16, 32]
    assert all(each.forward > 0 and each.backward > 0 and each.memory_bytes > 0 for each in profile.compute)
    assert profile.update_seconds > 0 and profile.evaluate_seconds > 0
    assert set(profile.codecs) == {"half", "top_k"}
    assert all(cost.encode > 0 and cost.decode > 0 for cost in profile.codecs.values())
    # Backward goes from the last layer to the first.
    assert profile.layers[0].ready > profile.layers[-1].ready > 0
    assert profile.spread[0] <= 1 <= profile.spread[-1]
