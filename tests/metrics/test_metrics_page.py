"""The example of the page about metrics is one."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import minga.metrics

PAGE = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text()


def test_the_example_counts_over_all_batches() -> None:
    names: dict[str, type[minga.metrics.Metric]] = {}
    example = PAGE.split("**One's own**")[1].split("```python\n")[1].split("```")[0]
    exec(example, {"minga": minga, "torch": torch}, names)
    hits = names["Hits"]()
    batches = [(torch.tensor([1.0, 3.0]), torch.tensor([2.0, 2.0])), (torch.tensor([5.0]), torch.tensor([0.0]))]
    found = hits.value(hits.combine([hits.state(*batch) for batch in batches]))
    assert found == pytest.approx(2 / 3)
