"""Whether two machines have the same data set: a short digest of some of its samples.

fingerprint(workload.train)  # "1438 samples, 5f0c3a9e21b7"
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import TensorDataset

from minga.data.order import Stretch
from minga.data.stream import StreamReader, is_stream

__all__ = ["fingerprint", "known_fingerprint"]

_SAMPLES = 64
# Tensors in memory are looked at as a whole; that takes about a second for so much.
_MOST_BYTES = 1 << 30


def fingerprint(dataset: Any) -> str:
    """Of the number of samples and some of them, or all in memory; samples that change when looked at are left out.

    Of a stream, these are the first ones.
    """
    if is_stream(dataset):
        return _of_stream(dataset)
    count = len(dataset)
    known = known_fingerprint(dataset)
    if known is not None:
        return known
    if type(dataset) is TensorDataset and sum(tensor.nbytes for tensor in dataset.tensors) <= _MOST_BYTES:
        digest = hashlib.sha256(b"".join(hashlib.sha256(_bytes_of(tensor)).digest() for tensor in dataset.tensors))
        return f"{count} samples, {digest.hexdigest()[:12]}"
    chosen = sorted({count * index // _SAMPLES for index in range(_SAMPLES)} | {count - 1})
    return f"{count} samples, {_digest((dataset[index], dataset[index]) for index in chosen)}"


def known_fingerprint(dataset: Any) -> str | None:
    """Of a data set that knows the hashes of all its samples, such as a prepared one, without reading any."""
    known = getattr(dataset, "fingerprint", None)
    return known if isinstance(known, str) else None


def _of_stream(dataset: Any) -> str:
    reader, again = StreamReader(dataset), StreamReader(dataset)
    beginning = Stretch(0, 0, reader.reaches(0, 0, _SAMPLES))
    digest = _digest(zip(reader.read(beginning), again.read(beginning), strict=True))
    count = "a stream" if reader.samples is None else f"a stream of {reader.samples} samples"
    return f"{count}, {digest}"


def _digest(looks: Iterable[tuple[Any, Any]]) -> str:
    """Of samples, each looked at twice."""
    digest = hashlib.sha256()
    for first, second in ((_bytes_of(first), _bytes_of(second)) for first, second in looks):
        digest.update(first if first == second else b"varies")
    return digest.hexdigest()[:12]


def _bytes_of(value: Any) -> bytes:
    if isinstance(value, Tensor):
        plain = value.detach().cpu().contiguous()
        return f"{plain.dtype}{tuple(plain.shape)}".encode() + plain.reshape(-1).view(torch.uint8).numpy().tobytes()
    if isinstance(value, list | tuple):
        return b"(" + b",".join(_bytes_of(each) for each in value) + b")"
    if isinstance(value, dict):
        return b"{" + b",".join(_bytes_of(key) + b":" + _bytes_of(each) for key, each in value.items()) + b"}"
    if hasattr(value, "tobytes") and hasattr(value, "shape"):  # numpy
        return f"{value.dtype}{value.shape}".encode() + bytes(value.tobytes())
    if value is None or isinstance(value, bool | int | float | str | bytes):
        return repr(value).encode()
    return type(value).__qualname__.encode()
