"""Studies from files: your own, and those that Minga ships."""

from __future__ import annotations

from pathlib import Path

from minga.base.config import FieldError, build
from minga.base.toml_files import at_its_place, read_toml
from minga.errors import unknown
from minga.study.description import Study

__all__ = ["load_study", "shipped_studies"]

_SHIPPED = Path(__file__).parent / "shipped"


def shipped_studies() -> dict[str, Path]:
    """Name and file of each study that comes with Minga."""
    return {path.stem: path for path in sorted(_SHIPPED.glob("*.toml"))}


def load_study(path_or_name: Path | str, *, quick: bool = False) -> Study:
    """A study from its TOML file or by its shipped name; errors name the line."""
    path = Path(path_or_name)
    if path.suffix != ".toml":
        if str(path_or_name) not in shipped_studies():
            raise unknown("study", str(path_or_name), shipped_studies(), "A study of your own: file.toml.")
        path = shipped_studies()[str(path_or_name)]
    text, table = read_toml(path)
    try:
        study = build(Study, table)
    except FieldError as error:
        raise at_its_place(error, path, text) from None
    try:
        quickened = study.quickened()  # also without --quick: a wrong table should not wait for the day it is used
    except FieldError as error:
        raise at_its_place(error, path, text, tables=("quick",)) from None
    return quickened if quick else study
