"""Pictures with what is said of them, as one HTML file without scripts and without anything to fetch."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from minga.errors import DataError
from minga.report.pages.markup import Markup, bullets, tag

__all__ = ["CaptionedPicture", "gallery"]

_KINDS = {".jpg": "jpeg", ".jpeg": "jpeg", ".png": "png", ".webp": "webp", ".bmp": "bmp"}

_STYLE = """
body { font-family: system-ui, sans-serif; margin: 2rem auto; max-width: 60rem; padding: 0 1rem; color: #222; }
main { display: grid; grid-template-columns: repeat(auto-fill, minmax(17rem, 1fr)); gap: 1.5rem; }
img { width: 100%; height: 12rem; object-fit: cover; border-radius: 4px; }
.none { height: 12rem; display: grid; place-content: center; background: #eee; border-radius: 4px; font-size: 0.8rem; }
.said { font-weight: 600; margin: 0.5rem 0 0.2rem; }
ul { margin: 0; padding-left: 1.1rem; color: #666; font-size: 0.85rem; }
"""


@dataclass(frozen=True)
class CaptionedPicture:
    """A picture, what the network says, and what people said."""

    name: str
    said: str
    people: Sequence[str] = ()
    picture: Path | None = None


def gallery(title: str, note: str, pictures: Sequence[CaptionedPicture]) -> str:
    """The page."""
    head = tag("head", tag("meta", charset="utf-8"), tag("title", title), tag("style", Markup(_STYLE)))
    body = tag("body", tag("h1", title), tag("p", note), tag("main", map(_figure, pictures)))
    return f"<!doctype html>\n{tag('html', head, body, lang='en')}\n"


def _figure(shown: CaptionedPicture) -> Markup:
    return tag("figure", _picture(shown), tag("p", shown.said, cls="said"), bullets(shown.people))


def _picture(shown: CaptionedPicture) -> Markup:
    if shown.picture is None:
        return tag("div", shown.name, cls="none")
    kind = _KINDS.get(shown.picture.suffix.lower())
    if kind is None:
        raise DataError(f"{shown.picture} is no picture that pages show ({', '.join(_KINDS)})")
    content = base64.b64encode(shown.picture.read_bytes()).decode()
    return tag("img", alt=shown.name, src=f"data:image/{kind};base64,{content}")
