"""`minga strategies`: what there is to choose from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.padding import Padding

from minga.cli.options import JsonOption
from minga.cli.output import present

__all__ = ["strategies"]


def strategies(as_json: JsonOption = False) -> None:
    """List strategies and codecs, with one line each and their fields.

    Example:

      minga strategies --json
    """
    from minga.codecs import CODECS
    from minga.strategies import STRATEGIES

    listed = {"strategies": _list(STRATEGIES), "codecs": _list(CODECS)}
    present(listed, lambda: _print(listed), as_json=as_json)


def _print(listed: Mapping[str, list[dict[str, Any]]]) -> None:
    console = Console()
    for family, entries in listed.items():
        console.print(f"[bold underline]{family}[/]")
        for entry in entries:
            console.print(f"[bold]{entry['name']}[/]  {escape(entry['summary'])}", highlight=False)
            for field in entry["fields"]:
                default = "" if field["default"] is None else f" = {field['default']}"
                text = f"{field['name']}{default}  [dim]{escape(field['type'])}: {escape(field['about'])}[/]"
                console.print(Padding(text, (0, 0, 0, 4)), highlight=False)
    console.print("Use: minga train digits --nodes 2 --strategy ps:mode=ssp,staleness=3 --codec half", highlight=False)


def _list(presets: Any) -> list[dict[str, Any]]:
    from minga.base.config import fields_of
    from minga.base.spec import Named, describe

    entries = []
    for name, preset in presets.items():
        fields = [
            {
                "name": field,
                "type": kind,
                "default": describe(default) if isinstance(default, Named) else default,
                "about": " ".join(about.split()),
            }
            for field, kind, default, about in fields_of(preset.cls)
            if field not in preset.fields
        ]
        entries.append({"name": name, "summary": preset.describe(), "fields": fields})
    return entries
