"""The transports that a run may use, by name: `--transport tcp`, `cluster.transport`."""

from __future__ import annotations

__all__ = ["TRANSPORTS"]

TRANSPORTS: dict[str, str] = {
    "tcp": "connections of Minga's own; when a rank is killed, hangs or comes back, the others go on",
    "gloo": "one group of ranks for the whole run, which a lost rank ends; default on GPUs and for native",
}
"""What each of them is, in one line."""
