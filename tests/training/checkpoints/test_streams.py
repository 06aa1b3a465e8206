"""Streamed data: a run goes on where it was in the stream."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from helpers.going_on import experiment_of
from helpers.streams import streamed_blobs
from minga.testing.worlds import train_with_checkpoints


@pytest.mark.parametrize("every", [3, 10])  # in the first epoch, whose length nobody knows, and in the second
@pytest.mark.parametrize("strategy", ["ring", "ps:mode=sync", "local_sgd:period=4"])
def test_a_run_goes_on_from_a_checkpoint_to_the_same_bits(tmp_path: Path, strategy: str, every: int) -> None:
    experiment = experiment_of(strategy, 3, steps=None, epochs=3, every_steps=every)
    kept = train_with_checkpoints(tmp_path, experiment, streamed_blobs())
    resumed = train_with_checkpoints(tmp_path, experiment, streamed_blobs(), resume=f"step-{every:08}")
    for before, after in zip(kept[:3], resumed[:3], strict=True):  # a server has its part only
        assert torch.equal(before.replica.parameters, after.replica.parameters)
    assert kept[0].order.position() == resumed[0].order.position()
    assert kept[0].order.epoch == 3
