"""A figure inside an HTML page: it scales with the page, and its ids do not meet those of other figures.

inline(drawing)         # <svg viewBox="..." role="img" aria-label="...">...</svg>
"""

from __future__ import annotations

import html
import re

from minga.report.figures.style import Drawing
from minga.report.pages.markup import Markup

__all__ = ["inline"]


def inline(drawing: Drawing) -> Markup:
    """The SVG element alone: no prolog, no metadata, no size but the shape of its box."""
    text = drawing.svg[drawing.svg.index("<svg") :].rstrip()
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    # A style element would hold for the whole page; the page's own sheet says the same for figures.
    text = re.sub(r"<defs>\s*<style[^>]*>[^<]*</style>\s*</defs>", "", text)
    opening = re.match(r"<svg[^>]*>", text)
    assert opening is not None, "matplotlib writes an svg element"
    box = re.search(r'viewBox="([^"]*)"', opening[0])
    assert box is not None, "matplotlib writes a viewBox"
    label = html.escape(drawing.title, quote=True)
    start = f'<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" viewBox="{box[1]}" '
    start += f'role="img" aria-label="{label}">'
    return Markup(start + _with_own_ids(text[opening.end() :], drawing.name))


def _with_own_ids(text: str, name: str) -> str:
    used = set(re.findall(r'(?:href="#|url\(#)([^")]+)', text))

    def own(match: re.Match[str]) -> str:
        return f' id="{name}-{match[1]}"' if match[1] in used else ""

    # The ids are matplotlib's own (hashes, "axes_1"); text in a figure has its quotes escaped or stands between tags,
    # and only what is inside a tag is looked at.
    def inside(match: re.Match[str]) -> str:
        element = re.sub(r' id="([^"]*)"', own, match[0])
        return re.sub(r'(href="#|url\(#)', rf"\g<1>{name}-", element)

    return re.sub(r"<[a-zA-Z][^>]*>", inside, text)
