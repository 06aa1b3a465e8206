"""How figures look: size, colors that color-blind people can distinguish, and SVG that is the same every time.

with house_style():
    figure, axes = new_figure(columns=2)
    axes[0][0].plot(...)
    Drawing("curves", "Accuracy against time", caption, to_svg(figure, "curves"))
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from minga.errors import UsageError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

__all__ = [
    "Drawing",
    "fitted",
    "house_style",
    "legend_below",
    "line_style",
    "new_figure",
    "plain_logarithmic",
    "seconds_label",
    "tidy",
    "to_svg",
]

WIDTH_INCHES = 10.5
# Okabe and Ito, without yellow, which is too light for lines on white.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#7F7F7F")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
DASHED = (0, (4, 2))

_SETTINGS: dict[str, Any] = {
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 9,
    "axes.titlesize": 9.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.labelsize": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#666666",
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#E3E3E3",
    "grid.linewidth": 0.7,
    "xtick.color": "#333333",
    "ytick.color": "#333333",
    "lines.linewidth": 1.6,
    "lines.markersize": 4.5,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "hatch.linewidth": 0.8,
    "text.parse_math": False,  # labels come from people: a dollar sign is a dollar sign
    "axes.formatter.use_mathtext": False,
}


@dataclass(frozen=True)
class Drawing:
    """A figure with its title and caption."""

    name: str
    title: str
    caption: str
    svg: str


def line_style(index: int, *, simulated: bool) -> dict[str, Any]:
    """How one of several lines is drawn, as options of matplotlib's `plot`."""
    # After eight lines the colors come again, with other markers.
    marker = MARKERS[(index + index // len(COLORS)) % len(MARKERS)]
    return {"color": COLORS[index % len(COLORS)], "marker": marker, "linestyle": DASHED if simulated else "-"}


@contextmanager
def house_style() -> Iterator[None]:
    """Figures are drawn inside of this; what others set up for their own figures stays as it is."""
    with _matplotlib().rc_context({**_matplotlib().rcParamsDefault, "backend": "svg", **_SETTINGS}):
        with warnings.catch_warnings():
            # The font that measures text may lack a letter; whoever shows the SVG has fonts of their own.
            warnings.filterwarnings("ignore", message="Glyph .* missing")
            yield


def new_figure(
    rows: int = 1, columns: int = 1, *, height: float = 2.9, extra: float = 0.0, **options: Any
) -> tuple[Figure, list[list[Axes]]]:
    """A figure of the page's width with rows of axes, `height` inches each and `extra` for all."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH_INCHES, rows * height + extra), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False, **options)
    return figure, [list(row) for row in grid]


def to_svg(figure: Figure, name: str) -> str:
    """The figure as text, the same for the same data."""
    matplotlib = _matplotlib()
    stream = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": f"minga-{name}"}):
        figure.savefig(stream, format="svg", metadata={"Date": None, "Creator": None})
    return stream.getvalue()


def legend_below(figure: Figure, handles: Mapping[str, Any]) -> None:
    """One legend for the whole figure, under it, where it can't hide a line; `handles`: what was drawn, by label."""
    labels = [fitted(label) for label in handles]
    longest = max((len(label) for label in labels), default=1)
    columns = max(1, min(len(labels), int(150 / (longest + 8))))
    figure.legend(list(handles.values()), labels, loc="outside lower center", ncols=columns)


def fitted(label: str, letters: int = 52) -> str:
    """A label that leaves room for the figure; tables have it whole."""
    label = "".join(letter if letter.isprintable() else "?" for letter in label)
    cut = label if len(label) <= letters else f"{label[: letters - 1]}…"
    return f" {cut}" if cut.startswith("_") else cut  # matplotlib leaves out what begins like that


def tidy(axes: Axes, values: Sequence[float]) -> None:
    """A logarithmic y axis where values differ by more than a factor of ten; else one that starts at zero."""
    positive = [value for value in values if value > 0]
    if positive and max(positive) > 10 * min(positive):
        axes.set_yscale("log")
        plain_logarithmic(axes.yaxis, subs=(1.0,) if max(positive) > 300 * min(positive) else (1.0, 3.0))
    elif positive:
        axes.set_ylim(0, 1.08 * max(positive))


def plain_logarithmic(axis: Axis, subs: tuple[float, ...] = ()) -> None:
    """Numbers instead of powers of ten on a logarithmic axis; `subs`: where in each decade."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    if subs:
        axis.set_major_locator(LogLocator(subs=subs))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())


def seconds_label(longest: float) -> tuple[float, str]:
    """What to divide seconds by for an axis, and the unit."""
    return (1.0, "s") if longest < 300 else (60.0, "min") if longest < 3 * 3600 else (3600.0, "h")


def _matplotlib() -> Any:
    try:
        import matplotlib
    except ImportError:
        raise UsageError("a report's figures need matplotlib: pip install 'minga[report]'") from None
    return matplotlib
