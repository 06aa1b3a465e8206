"""A small Flickr8k: photographs of animals and what they do, which features tell."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from minga.data.formats.captions import CAPTIONS, SPLITS

ANIMALS = ("dog", "cat", "bird", "horse")
DEEDS = ("runs", "sleeps", "eats")
WIDTH = 16


def make_flickr8k(place: Path, photographs: int = 60) -> Path:
    """DIR with DIR/flickr8k; two thirds are trained on."""
    directory = place / "flickr8k"
    directory.mkdir(parents=True)
    generator = np.random.default_rng(0)
    names, captions, rows = [], [], []
    for number in range(photographs):
        animal, deed = number % len(ANIMALS), number // len(ANIMALS) % len(DEEDS)
        name = f"{number:04d}_photo.jpg"
        names.append(name)
        said = [
            f"A {ANIMALS[animal]} {DEEDS[deed]} on the grass .",
            f"A brown {ANIMALS[animal]} {DEEDS[deed]} .",
            f"The {ANIMALS[animal]} {DEEDS[deed]} on 2 rocks !",
        ]
        captions += [f"{name}#{which}\t{each}\n" for which, each in enumerate(said)]
        row = 0.05 * generator.standard_normal(WIDTH)
        row[animal] += 2.0
        row[len(ANIMALS) + deed] += 2.0
        rows.append(row)
    captions.append("2258277193_586949ec62.jpg.1#0\tA sentence without a photograph .\n")
    (directory / CAPTIONS).write_text("".join(captions), encoding="utf-8")
    cuts = {"train": (0, photographs * 2 // 3), "dev": (photographs * 2 // 3, photographs * 5 // 6)}
    cuts["test"] = (photographs * 5 // 6, photographs)
    for split, (start, stop) in cuts.items():
        (directory / SPLITS[split]).write_text("\n".join(names[start:stop]) + "\n", encoding="utf-8")
    np.savez(directory / "features_made.npz", names=np.array(names), feats=np.array(rows, dtype=np.float16))
    return place
