"""`minga doctor`."""

from __future__ import annotations

import typer

__all__ = ["register"]


def register(application: typer.Typer) -> None:
    pass
