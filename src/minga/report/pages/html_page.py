"""The report as one HTML file that needs nothing else: no script, no network, figures inside."""

from __future__ import annotations

import html
import re

from minga.report.document import Report, Section
from minga.report.figures.style import Drawing
from minga.report.pages.markup import Markup, bullets, tag
from minga.report.table import Column, Table

__all__ = ["section_html", "to_html"]

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
_LONG = 12

_STYLE = """
:root { color-scheme: light; }
body { font: 16px/1.5 system-ui, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; color: #1c1c1c;
  background: #fff; max-width: 1120px; margin: 2rem auto 4rem; padding: 0 1.5rem; }
h1 { font-size: 1.8rem; line-height: 1.2; margin: 0 0 1rem; overflow-wrap: anywhere; }
h2 { font-size: 1.3rem; margin: 2.6rem 0 .6rem; padding-top: .6rem; border-top: 1px solid #d5d5d5; }
h3 { font-size: 1.02rem; margin: 1.6rem 0 .3rem; }
.summary { background: #f3f7fa; border-left: 4px solid #0072b2; padding: .9rem 1.2rem; }
.summary h2 { border: 0; margin: 0 0 .4rem; padding: 0; font-size: 1.15rem; }
.summary ul { margin: 0; padding-left: 1.2rem; } .summary li { margin: .3rem 0; overflow-wrap: anywhere; }
.notes { background: #fdf6e7; border-left: 4px solid #e69f00; padding: .6rem 1.2rem; margin-top: 1rem; }
.notes ul { margin: 0; padding-left: 1.2rem; }
nav { margin: 1.1rem 0 0; font-size: .92rem; display: flex; flex-wrap: wrap; gap: .2rem 1.1rem; }
a { color: #00568a; }
figure { margin: 1.2rem 0 1.6rem; }
figure svg { display: block; width: 100%; height: auto; }
figure svg * { stroke-linejoin: round; stroke-linecap: butt; }
figcaption { color: #4a4a4a; font-size: .88rem; margin-top: .3rem; max-width: 62rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: .86rem; font-variant-numeric: tabular-nums; margin: .3rem 0; }
th, td { padding: .28rem .8rem .28rem 0; text-align: right; vertical-align: top; border-bottom: 1px solid #e4e4e4; }
th { border-bottom: 2px solid #999; font-weight: 600; vertical-align: bottom; }
th.text, td.text { text-align: left; } th { overflow-wrap: normal; }
td { white-space: nowrap; } td.text { white-space: normal; min-width: 8rem; max-width: 32rem; overflow-wrap: anywhere; }
td small { display: block; color: #555; }
tbody tr:nth-child(even) { background: #fafafa; }
.note { color: #4a4a4a; font-size: .88rem; margin: .2rem 0; }
details { margin: .8rem 0; } summary { cursor: pointer; font-weight: 600; }
@media print {
  @page { margin: 14mm; }
  body { max-width: none; margin: 0; padding: 0; font-size: 10pt; }
  nav { display: none; }
  figure, .summary { break-inside: avoid; }
  h2, h3, summary { break-after: avoid; }
  table { font-size: 7.5pt; } th, td { padding-right: .5rem; } tr { break-inside: avoid; }
  thead { display: table-header-group; }
  .wide { overflow: visible; }
}
"""


def to_html(report: Report) -> str:
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("title", report.title),
        tag("style", Markup(_STYLE)),
    )
    body = tag(
        "body",
        tag("h1", report.title),
        tag("section", tag("h2", "What the figures show"), bullets(report.sentences), cls="summary"),
        tag("div", bullets(report.notes), cls="notes") if report.notes else Markup(),
        tag("nav", [tag("a", section.title, href=f"#{section.anchor}") for section in report.sections]),
        tag("main", [section_html(section) for section in report.sections]),
    )
    return f"<!DOCTYPE html>\n{tag('html', head, body, lang='en')}\n"


def section_html(section: Section) -> Markup:
    """One section with its figures and tables, also for other pages than this one."""
    return tag(
        "section",
        tag("h2", section.title, id=section.anchor),
        [_figure(drawing) for drawing in section.drawings],
        [_table(table, section) for table in section.shown],
    )


def _figure(drawing: Drawing) -> Markup:
    return tag("figure", tag("h3", drawing.title), _inline(drawing), tag("figcaption", drawing.caption))


def _table(table: Table, section: Section) -> Markup:
    shown = table.shown
    headings = [tag("th", column.heading, scope="col", cls=_align(column)) for column in shown.columns]
    rows = [tag("tr", map(_cell, shown.columns, cells)) for cells in shown.cells()]
    grid = tag("table", tag("thead", tag("tr", headings)), tag("tbody", rows))
    note = tag("p", table.note, cls="note") if table.note else Markup()
    if section.folded and len(table.rows) > _LONG:
        title = f"{table.title} ({len(table.rows)} rows; also in tables/{table.name}.csv)"
        return tag("details", tag("summary", title), note, tag("div", grid, cls="wide"))
    heading = tag("h3", table.title) if table.title != section.title else Markup()
    return tag("div", heading, note, tag("div", grid, cls="wide"))


def _cell(column: Column, cell: tuple[str, str]) -> Markup:
    value, extent = cell
    return tag("td", value, tag("small", extent) if extent else Markup(), cls=_align(column))


def _align(column: Column) -> str:
    return "text" if column.text else "number"


def _inline(drawing: Drawing) -> Markup:
    """The SVG element alone: it scales with the page, and its ids do not meet those of other figures."""
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
