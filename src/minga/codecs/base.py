"""What a codec is: the form that a vector has on the wire."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from minga.spec import Named

__all__ = ["Codec"]


@dataclass(frozen=True, kw_only=True)
class Codec(Named, ABC):
    """How a vector is squeezed before it is sent.

    The encoded form of the codecs here can be added up as it is, so a collective can run on it.
    """

    kind = "codec"
    changes_form: ClassVar[bool] = True
    """False where the encoded vector is the vector itself."""

    @abstractmethod
    def encode(self, vector: Tensor) -> Tensor:
        """What goes over the wire; may be `vector` itself when nothing is squeezed."""

    @abstractmethod
    def decode(self, encoded: Tensor, into: Tensor) -> None:
        """Undo `encode`, writing to `into`."""

    @abstractmethod
    def encoded_like(self, vector: Tensor) -> Tensor:
        """Space for receiving what `encode` makes of a vector like this one."""
