"""`minga launch`: a script with a training loop of its own, on several nodes."""

from __future__ import annotations

import typer

__all__ = ["register"]


def register(application: typer.Typer) -> None:
    pass
