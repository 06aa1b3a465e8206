"""Which reader is for what."""

from __future__ import annotations

from pathlib import Path

import pytest

from minga.data.formats import origin_of_path
from minga.errors import DataError


def test_what_is_not_known_is_told(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="neither a data set that Minga knows"):
        origin_of_path(tmp_path / "nowhere")
    (tmp_path / "x.docx").touch()
    with pytest.raises(DataError, match=r"known are folders of pictures, tables .* and text"):
        origin_of_path(tmp_path / "x.docx")
