"""Tensors and JSON as one safetensors blob, written piece by piece and read with care.

    for piece in pieces_of(tensors, {"minga": text}): file.write(piece)
    tensors, metadata = parse(path.read_bytes())

The format is that of the safetensors library, which reads it back. It is written here because the library either makes
a second copy of everything in memory or writes files that can be neither synced nor hashed on the way.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Mapping

from safetensors import SafetensorError
from safetensors.torch import load

from minga.base.lazy import Tensor, torch
from minga.errors import ProtocolError

__all__ = ["parse", "pieces_of"]

_PIECE = 4 << 20
_LONGEST_HEADER = 100 << 20
_NAMES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}


def pieces_of(tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> Iterator[bytes | memoryview]:
    """The blob, in pieces of a few megabytes at most; the first one is the header."""
    # The widest types first, so that everything is aligned.
    ordered = sorted(tensors.items(), key=lambda pair: (-pair[1].element_size(), pair[0]))
    header: dict[str, object] = {"__metadata__": dict(metadata)}
    at = 0
    for name, tensor in ordered:
        kind = _NAMES.get(tensor.dtype)
        if kind is None:
            known = ", ".join(str(dtype).removeprefix("torch.") for dtype in _NAMES)
            raise TypeError(f"{name} is of type {tensor.dtype}, which can't be kept; those that can: {known}")
        header[name] = {"dtype": kind, "shape": list(tensor.shape), "data_offsets": [at, at + tensor.nbytes]}
        at += tensor.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    yield struct.pack("<Q", len(text)) + text
    for _, tensor in ordered:
        if tensor.numel():
            flat = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
            content = memoryview(flat.numpy())  # type: ignore[arg-type]
            for start in range(0, len(content), _PIECE):
                yield content[start : start + _PIECE]


def parse(data: bytes) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors and the metadata of a blob; `ProtocolError` if it is none."""
    try:
        (length,) = struct.unpack("<Q", data[:8])
        if length > min(_LONGEST_HEADER, len(data) - 8):
            raise ProtocolError(f"a header of {length:,} bytes in a blob of {len(data):,} can't be")
        metadata = json.loads(data[8 : 8 + length])["__metadata__"]
        tensors: dict[str, Tensor] = load(data)
    except (SafetensorError, struct.error, ValueError, KeyError, TypeError, RecursionError) as error:
        raise ProtocolError(f"this is no state of a training: {error}") from None
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise ProtocolError("this is no state of a training: its metadata is no table of texts")
    return tensors, metadata
