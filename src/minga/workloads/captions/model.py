"""The network of the Quito thesis: a picture's features and the words so far, added up, tell the next word."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from minga.data.formats.vocabulary import END

__all__ = ["CaptionNet"]


class CaptionNet(nn.Module):
    """Features: dropout, dense 256. Words: embedding 256, dropout, LSTM 256. Added, dense 256, dense vocabulary.

    Since the picture joins behind the LSTM, all places of a sentence are computed at once while training, and saying
    one more word takes one more step of the LSTM (Tanti et al., arXiv:1703.09137).
    """

    def __init__(self, words: int, features: int, *, width: int = 256, dropout: float = 0.5) -> None:
        super().__init__()
        self.picture = nn.Sequential(nn.Dropout(dropout), nn.Linear(features, width), nn.ReLU())
        self.embedding = nn.Embedding(words, width)
        self.before_memory = nn.Dropout(dropout)
        self.memory = nn.LSTM(width, width, batch_first=True)
        self.merged = nn.Sequential(nn.Linear(width, width), nn.ReLU())
        self.outputs = nn.Linear(width, words)

    def forward(self, features: Tensor, words: Tensor, kept: Tensor | None = None) -> Tensor:
        """Scores of the next word: samples x places x words; with `kept` of these places only, one after another."""
        remembered, _ = self.memory(self.before_memory(self.embedding(words)))
        both = self.picture(features).unsqueeze(1) + remembered
        # Most of a batch of sentences of different lengths is padding, and the vocabulary is the largest layer.
        result: Tensor = self.outputs(self.merged(both if kept is None else both[kept]))
        return result

    def begin(self, features: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """For sentences that grow word by word: the pictures, and an LSTM that remembers nothing."""
        nothing = features.new_zeros(1, len(features), self.memory.hidden_size)
        return self.picture(features), (nothing, nothing.clone())

    def next_word(
        self, picture: Tensor, word: Tensor, memory: tuple[Tensor, Tensor]
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """Scores of all words after one more, and what is remembered then."""
        remembered, memory = self.memory(self.before_memory(self.embedding(word)).unsqueeze(1), memory)
        return self.outputs(self.merged(picture + remembered.squeeze(1))), memory


def next_words(words: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Of sentences with START and END: inputs, what follows each, and which places count. Trimmed to the longest."""
    inputs, targets = words[:, :-1], words[:, 1:]
    # A place counts up to the first END, which is to be learned; the END after it is padding.
    kept = torch.cat([torch.ones_like(inputs[:, :1], dtype=torch.bool), inputs[:, 1:] != END], dim=1)
    longest = int(kept.sum(dim=1).max())
    return inputs[:, :longest], targets[:, :longest], kept[:, :longest]
