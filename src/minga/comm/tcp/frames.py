"""What travels between two ranks: headers of a fixed size, some with a message behind them.

A short message is sent at once; the other side keeps it if nobody asks for it yet. A long one needs a *permit*, which
says that a receive of its tag waits for it: so it goes straight into the tensor it is for, and is never in the way of
other messages. A permit is sent when the receive is posted, so usually there is one before the message is; a message
without one is *announced* meanwhile, for receives from anybody.
"""

from __future__ import annotations

import struct

__all__ = [
    "ANNOUNCE",
    "CREDIT",
    "EAGER",
    "GOODBYE",
    "HEADER",
    "MESSAGE",
    "PERMIT",
    "SHORT_BYTES",
    "WINDOW_BYTES",
    "cost",
]

HEADER = struct.Struct("!BB6xqQ")
"""Kind, whether the message was announced, tag, length."""

EAGER = 1
"""A short message, unasked."""
MESSAGE = 2
"""A message with a permit (or over connections where everything is asked for)."""
ANNOUNCE = 3
"""A message waits for its permit."""
PERMIT = 4
"""A receive waits for a message of this tag."""
CREDIT = 5
"""So many bytes of short messages have been taken."""
GOODBYE = 6
"""The connection ends because its owner is done, not because it broke."""

SHORT_BYTES = 1 << 16
"""The longest message that is sent unasked."""
WINDOW_BYTES = 1 << 20
"""How much may have been sent unasked and not been taken yet; what is beyond that is announced."""
# What a message counts beyond its bytes, so that empty ones can't pile up either.
_OVERHEAD_BYTES = 64


def cost(length: int) -> int:
    """How much of the window a short message takes."""
    return length + _OVERHEAD_BYTES
