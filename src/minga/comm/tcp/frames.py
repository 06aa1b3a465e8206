"""What travels between two ranks: headers of a fixed size, some with a message behind them.

A short message is sent at once; the other side keeps it if nobody asks for it yet. A long one needs a *permit*, which
says that a receive of its tag waits for it: so it goes straight into the tensor it is for, and is never in the way of
other messages. A permit is sent when the receive is posted, so usually there is one before the message is; a message
without one is *announced* meanwhile, for receives from anybody. In a gathering everybody is about to post receives: its
messages go unasked also if they are longer, which saves half a round trip and lets them travel while others compute.
"""

from __future__ import annotations

import enum
import struct

__all__ = ["EXPECTED_BYTES", "HEADER", "SHORT_BYTES", "WINDOW_BYTES", "Kind", "cost"]

HEADER = struct.Struct("!BB6xqQ")
"""Kind, whether the message was announced, tag, length."""


class Kind(enum.IntEnum):
    """Of a frame."""

    UNASKED = 1
    """A message that nobody has asked for: a short or an expected one."""
    MESSAGE = 2
    """A message with a permit."""
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
EXPECTED_BYTES = 1 << 24
"""The same two limits where the other side is about to post the receive."""
# What a message counts beyond its bytes, so that empty ones can't pile up either.
_OVERHEAD_BYTES = 64


def cost(length: int) -> int:
    """How much of the window a message takes that is sent unasked."""
    return length + _OVERHEAD_BYTES
