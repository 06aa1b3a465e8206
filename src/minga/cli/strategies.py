"""`minga strategies`: what there is to choose from."""

from __future__ import annotations

import json
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.padding import Padding

from minga.cli.options import JsonOption

__all__ = ["strategies"]


def strategies(as_json: JsonOption = False) -> None:
    """List strategies and codecs, with one line each and their fields.

    Example:

      minga strategies --json
    """
    listed = {"strategies": _strategies(), "codecs": _codecs()}
    if as_json:
        print(json.dumps(listed))
        return
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


def _strategies() -> list[dict[str, Any]]:
    from minga.strategies import STRATEGIES

    return _list(STRATEGIES)


def _codecs() -> list[dict[str, Any]]:
    from minga.codecs import CODECS

    return _list(CODECS)


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
