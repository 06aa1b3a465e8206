"""Which reader is for what, and that other processes can open it quickly."""

from __future__ import annotations

from pathlib import Path

import pytest

from minga.data import formats
from minga.data.formats import READERS, origin_of_path
from minga.data.sources import known_datasets
from minga.errors import DataError


def test_what_is_not_known_is_told(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="neither a data set that Minga knows"):
        origin_of_path(tmp_path / "nowhere")
    (tmp_path / "x.docx").touch()
    with pytest.raises(DataError, match=r"known are folders of pictures, tables .* and text"):
        origin_of_path(tmp_path / "x.docx")


def test_known_data_sets_have_readers() -> None:
    assert {dataset.reader for dataset in known_datasets().values()} <= set(READERS)


def test_readers_need_no_torch() -> None:
    """Processes that prepare samples start quickly without it."""
    for path in Path(formats.__file__).parent.glob("*.py"):
        imported = any(line.startswith(("import torch", "from torch")) for line in path.read_text().splitlines())
        assert imported == (path.name == "dataset.py"), path.name
