"""Pictures with captions on a page."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from minga.errors import DataError
from minga.report.pages.gallery import CaptionedPicture, gallery


def test_pictures_are_in_the_page_and_words_are_harmless(tmp_path: Path) -> None:
    (tmp_path / "dog.jpg").write_bytes(b"a picture")
    page = gallery(
        "Captions & more",
        "By a run",
        [
            CaptionedPicture("dog.jpg", "a dog <runs>", ["A dog .", "<script>"], tmp_path / "dog.jpg"),
            CaptionedPicture('"quoted".jpg', "a cat"),
        ],
    )
    assert f'src="data:image/jpeg;base64,{base64.b64encode(b"a picture").decode()}"' in page
    assert "a dog &lt;runs&gt;" in page and "<li>&lt;script&gt;</li>" in page and "<script" not in page
    assert '<div class="none">&quot;quoted&quot;.jpg</div>' in page
    assert "Captions &amp; more" in page


def test_what_is_no_picture_is_told(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("no picture")
    with pytest.raises(DataError, match=r"notes\.txt is no picture"):
        gallery("", "", [CaptionedPicture("notes.txt", "words", (), tmp_path / "notes.txt")])
