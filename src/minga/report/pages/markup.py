"""HTML from nested calls, where text is always escaped.

str(tag("td", "<b>", cls="number"))         # <td class="number">&lt;b&gt;</td>
"""

from __future__ import annotations

import html
from collections.abc import Iterable

__all__ = ["Markup", "bullets", "grid", "tag"]


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


_WITHOUT_END = {"meta", "br", "hr", "link", "img"}


def tag(name: str, /, *content: str | Iterable[str], **attributes: str | bool) -> Markup:
    """An element; strings in it are escaped unless they are `Markup`. `cls` is the attribute class."""
    words = [name]
    for key, value in attributes.items():
        attribute = {"cls": "class"}.get(key, key.replace("_", "-"))
        if value is True:
            words.append(attribute)
        elif value is not False:
            words.append(f'{attribute}="{html.escape(str(value), quote=True)}"')
    opening = f"<{' '.join(words)}>"
    return Markup(opening if name in _WITHOUT_END else f"{opening}{_text(content)}</{name}>")


def bullets(points: Iterable[str]) -> Markup:
    """A list; nothing where there is none."""
    items = [tag("li", point) for point in points]
    return tag("ul", items) if items else Markup()


def grid(headings: Iterable[str], rows: Iterable[Iterable[str]]) -> Markup:
    """A plain table."""
    lines = [tag("tr", [tag("td", cell) for cell in row]) for row in rows]
    return tag("table", tag("tr", [tag("th", heading) for heading in headings]), lines)


def _text(content: Iterable[str | Iterable[str]]) -> str:
    parts: list[str] = []
    for each in content:
        if isinstance(each, Markup):
            parts.append(each)
        elif isinstance(each, str):
            parts.append(html.escape(each))
        else:
            parts.append(_text(each))
    return "".join(parts)
