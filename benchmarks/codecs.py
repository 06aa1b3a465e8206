"""What codecs cost and save: time to encode and decode, bytes on the wire, top_k by a sample against sorting.

python benchmarks/codecs.py

Times are CPU time of one thread, so that other programs on the machine count little.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from typing import Any

import harness
import torch

from minga.base.spec import describe, parse
from minga.codecs import Codec, Stream
from minga.workloads.models import SmallConvNet

SPECS = [
    "half",
    "int8",
    "int8:rounding=nearest",
    "int4",
    "sign",
    "top_k",
    "top_k:selection=exact",
    "top_k:momentum_correction=true",
    "random_k",
    "power_sgd",
    "power_sgd:rank=4",
]
LARGE = {"25 M values": [(5000, 2500), (2500, 2500), (2500, 2500)]}
BATCH = 64
REPETITIONS = 7


def training_step_seconds() -> float:
    """Forward, backward and update of the network, in the median."""
    torch.manual_seed(0)
    model = SmallConvNet()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    pictures, classes = torch.randn(BATCH, 1, 28, 28), torch.randint(0, 10, (BATCH,))
    seconds = []
    for _ in range(40):
        began = time.process_time()
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(pictures), classes).backward()
        optimizer.step()
        seconds.append(time.process_time() - began)
    return statistics.median(seconds[5:])


class Contestant:
    """One codec with one vector, which changes a little each time, as gradients do."""

    def __init__(self, spec: str, shapes: Sequence[tuple[int, ...]], vectors: list[torch.Tensor]) -> None:
        self.codec = parse(Codec, spec)  # type: ignore[type-abstract]
        self.vectors = vectors
        self.stream = Stream.of(vectors[0], shapes)
        self.stream.momentum = 0.9
        self.decoded = torch.empty_like(vectors[0])
        self.turn = 0
        self.encode_seconds: list[float] = []
        self.decode_seconds: list[float] = []

    def run(self) -> float:
        """Twice, of which the second counts: the one before it had its own use for caches and memory."""
        self._once()
        encode, decode = self._once()
        self.encode_seconds.append(encode)
        self.decode_seconds.append(decode)
        return encode + decode

    def _once(self) -> tuple[float, float]:
        self.turn += 1
        began = time.process_time()
        encoded = self.codec.encode(self.vectors[self.turn % len(self.vectors)], self.stream)
        between = time.process_time()
        self.codec.decode(encoded, self.decoded, self.stream)
        ended = time.process_time()
        return between - began, ended - between


def measure(name: str, shapes: Sequence[tuple[int, ...]], repetitions: int, step: float | None) -> list[dict[str, Any]]:
    generator = torch.Generator().manual_seed(0)
    length = sum(torch.Size(shape).numel() for shape in shapes)
    vectors = [torch.randn(length, generator=generator) for _ in range(2)]
    contestants = {spec: Contestant(spec, shapes, vectors) for spec in SPECS}
    seconds = harness.alternate({spec: contestant.run for spec, contestant in contestants.items()}, repetitions)
    rows = []
    for spec, contestant in contestants.items():
        # The first one is the warm-up.
        encode, decode = (
            statistics.median(times[1:]) for times in (contestant.encode_seconds, contestant.decode_seconds)
        )
        nbytes = vectors[0].nbytes
        row: dict[str, Any] = {
            "vector": name,
            "codec": describe(contestant.codec),
            "times smaller": nbytes / contestant.codec.encoded_bytes(vectors[0], contestant.stream),
            "encode, ms": 1000 * encode,
            "decode, ms": 1000 * decode,
            "encode, GB/s": nbytes / encode / 1e9,
            "decode, GB/s": nbytes / decode / 1e9,
            "share of a step, %": "" if step is None else round(100 * (encode + decode) / step, 1),
            "faster than exact top_k": "",
            "repetitions": repetitions,
        }
        if spec == "top_k":
            exact = contestants["top_k:selection=exact"].encode_seconds[1:]
            ratios = [theirs / ours for theirs, ours in zip(exact, contestant.encode_seconds[1:], strict=True)]
            row["faster than exact top_k"] = round(statistics.median(ratios), 1)
        rows.append(row)
    assert all(len(times) == repetitions for times in seconds.values())
    return rows


def main() -> None:
    torch.set_num_threads(1)
    rows = []
    for name, shapes in LARGE.items():
        rows += measure(name, shapes, REPETITIONS, None)
    step = training_step_seconds()
    layers = [tuple(parameter.shape) for parameter in SmallConvNet().parameters()]
    rows += measure("CNN, 0.42 M", layers, 10 * REPETITIONS, step)
    harness.save(
        "codecs",
        rows,
        f"codecs: float32 values in, CPU time of 1 thread, medians, taking turns; a step of the CNN with "
        f"batch {BATCH} takes {1000 * step:.1f} ms",
    )


if __name__ == "__main__":
    main()
