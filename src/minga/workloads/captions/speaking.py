"""What a trained network says of photographs, and how good that is.

speaker = Speaker.of(Path("runs/RUN"))
speaker.captions(features)                           # one sentence for each row
speaker.score("test", beam=3)                        # {"BLEU-1": ..., ...}
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from minga.errors import ConfigError, unknown
from minga.training.trained import load_trained
from minga.workloads.captions.decoding import sentences
from minga.workloads.captions.model import CaptionNet
from minga.workloads.captions.workload import LONGEST, CaptionData, bleu_metrics, load_caption_data

__all__ = ["Speaker"]

_AT_ONCE = 250


@dataclass(frozen=True)
class Speaker:
    """A network that tells what it sees, with its words."""

    model: CaptionNet
    content: CaptionData

    @classmethod
    def of(cls, run: Path, data: str | None = None) -> Speaker:
        """From a finished run of `flickr8k-captions`."""
        trained = load_trained(run, data=data)
        if not isinstance(trained.model, CaptionNet):
            raise ConfigError(f"{run} trained {trained.experiment.workload}, which tells no captions; give another run")
        where = data if data is not None else trained.experiment.data
        return cls(trained.model, load_caption_data(Path(where).expanduser() if where else None))

    def captions(self, features: Tensor, *, beam: int) -> list[str]:
        """A sentence for each picture's features."""
        if features.shape[1] != self.content.features.width:
            raise ConfigError(
                f"this encoder gives {features.shape[1]:,} numbers, and the network was trained with "
                f"{self.content.features.width:,}: give the encoder that its features were computed by"
            )
        return [self.content.vocabulary.text(words) for words in self._said(features, beam).tolist()]

    def score(self, split: str, *, beam: int) -> dict[str, float]:
        """BLEU-1 to BLEU-4 of all photographs of a split."""
        return self.bleu(*self.said_of(split, beam=beam))

    def bleu(self, said: Tensor, references: Tensor) -> dict[str, float]:
        """BLEU-1 to BLEU-4 of sentences against what people said, both as numbers of words."""
        return {name: metric.value(metric.state(said, references)) for name, metric in bleu_metrics().items()}

    def said_of(self, split: str, *, beam: int) -> tuple[Tensor, Tensor]:
        """Of all photographs of a split: sentences, and what people said, as numbers of words."""
        if split not in self.content.names:
            raise unknown("split", split, self.content.names)
        features, references = self.content.photographs(split).tensors
        return self._said(features, beam), references

    def _said(self, features: Tensor, beam: int) -> Tensor:
        with torch.no_grad():
            parts = [
                sentences(self.model, part.float(), beam=beam, longest=LONGEST)
                for part in torch.split(features, _AT_ONCE)
            ]
        longest = max(part.shape[1] for part in parts)
        return torch.cat([torch.nn.functional.pad(part, (0, longest - part.shape[1])) for part in parts])
