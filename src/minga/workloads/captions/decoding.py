"""From scores of next words to sentences: the likeliest word each time, or the likeliest sentences of several."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from minga.data.formats.vocabulary import END, START, UNKNOWN
from minga.errors import ConfigError
from minga.workloads.captions.model import CaptionNet

__all__ = ["beam_search", "greedy", "sentences"]

_NEVER_SAID = (START, UNKNOWN)


def sentences(model: CaptionNet, features: Tensor, *, beam: int, longest: int) -> Tensor:
    """Pictures x words; `beam`: how many sentences are looked at for each picture."""
    if beam < 1:
        raise ConfigError(f"the beam should be at least 1 sentence wide, not {beam}")
    return (
        greedy(model, features, longest=longest) if beam == 1 else beam_search(model, features, beam, longest=longest)
    )


def greedy(model: CaptionNet, features: Tensor, *, longest: int) -> Tensor:
    """The likeliest next word, again and again, until END."""
    picture, memory = model.begin(features)
    word = torch.full((len(features),), START, dtype=torch.int64, device=features.device)
    said = []
    over = torch.zeros_like(word, dtype=torch.bool)
    for _ in range(longest):
        scores, memory = model.next_word(picture, word, memory)
        scores[:, list(_NEVER_SAID)] = -math.inf
        word = scores.argmax(dim=1).masked_fill(over, END)
        said.append(word)
        over |= word == END
        if bool(over.all()):
            break
    return torch.stack(said, dim=1)


def beam_search(model: CaptionNet, features: Tensor, beam: int, *, longest: int, length_power: float = 0.7) -> Tensor:
    """The likeliest sentence of those that a beam of the best beginnings leads to.

    Longer sentences are less likely, each word costing something; scores are divided by their length to `length_power`.
    """
    pictures, device = len(features), features.device
    picture, memory = model.begin(features)
    picture = picture.repeat_interleave(beam, dim=0)
    hidden, cell = (part.repeat_interleave(beam, dim=1) for part in memory)
    word = torch.full((pictures * beam,), START, dtype=torch.int64, device=device)
    # At first all beginnings of a picture are the same: only one counts.
    score = torch.full((pictures, beam), -math.inf, device=device)
    score[:, 0] = 0.0
    said = torch.zeros(pictures, beam, 0, dtype=torch.int64, device=device)
    over = torch.zeros(pictures, beam, dtype=torch.bool, device=device)
    length = torch.zeros(pictures, beam, device=device)
    for _ in range(longest):
        scores, (hidden, cell) = model.next_word(picture, word, (hidden, cell))
        scores[:, list(_NEVER_SAID)] = -math.inf
        step = scores.log_softmax(dim=1).view(pictures, beam, -1)
        # A sentence that is over stays as it is.
        step = step.masked_fill(over.unsqueeze(2), -math.inf)
        step[:, :, END] = step[:, :, END].masked_fill(over, 0.0)
        longer = length + (~over)
        total = score.unsqueeze(2) + step
        ranked = (total / longer.clamp(min=1).unsqueeze(2) ** length_power).flatten(1)
        best = ranked.topk(beam, dim=1).indices
        origin, chosen = best // step.shape[2], best % step.shape[2]
        score = total.flatten(1).gather(1, best)
        length, over = longer.gather(1, origin), over.gather(1, origin)
        said = torch.cat(
            [said.gather(1, origin.unsqueeze(2).expand(-1, -1, said.shape[2])), chosen.unsqueeze(2)], dim=2
        )
        over = over | (chosen == END)
        rows = (origin + beam * torch.arange(pictures, device=device).unsqueeze(1)).flatten()
        hidden, cell = hidden[:, rows], cell[:, rows]
        word = chosen.flatten()
        if bool(over.all()):
            break
    winner = (score / length.clamp(min=1) ** length_power).argmax(dim=1)
    return said[torch.arange(pictures, device=device), winner]
