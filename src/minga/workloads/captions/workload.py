"""The workload `flickr8k-captions`: learns what people say of 6,000 photographs, and says something of others.

    minga train flickr8k-captions --data DIR --nodes 2
    minga caption 3385593926_d3e9c21170.jpg --run runs/RUN --data DIR

Photographs come as features that an encoder has computed before: DIR/flickr8k/features*.npz.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import TensorDataset

from minga.data.directory import dataset_directory
from minga.data.formats.captions import CAPTIONS, SPLITS, CaptionFiles, find_features
from minga.data.formats.vocabulary import padded, padded_groups
from minga.errors import ConfigError
from minga.metrics import Bleu, Perplexity
from minga.runs.workload import FurtherTest, Workload
from minga.workloads.captions.decoding import greedy, sentences
from minga.workloads.captions.encoders import Features
from minga.workloads.captions.model import CaptionNet, next_words
from minga.workloads.schedules import warm_up_and_fall

__all__ = ["LONGEST", "CaptionData", "bleu_metrics", "flickr8k_captions", "load_caption_data"]

LONGEST = 30
"""Words that a generated sentence has at most."""

_AT_LEAST = 5  # rarer words can't be learned, and make the largest layer three times as large
_NO_PLACE = -1


@dataclass(frozen=True)
class CaptionData(CaptionFiles):
    """Captions, the standard split, words, and features."""

    features: Features

    def sentences(self, split: str) -> TensorDataset:
        """A sample for each caption: the photograph's features and the caption's words."""
        owners = [name for name in self.names[split] for _ in self.captions[name]]
        words = [self.vocabulary.encode(each) for name in self.names[split] for each in self.captions[name]]
        return TensorDataset(self.features.of(owners), torch.from_numpy(padded(words)))

    def photographs(self, split: str) -> TensorDataset:
        """A sample for each photograph: its features and all that people said."""
        told = [[self.vocabulary.reference(each) for each in self.captions[name]] for name in self.names[split]]
        return TensorDataset(self.features.of(self.names[split]), torch.from_numpy(padded_groups(told)))


def load_caption_data(data: Path | None) -> CaptionData:
    """Read DIR/flickr8k."""
    directory = dataset_directory("flickr8k", data, needs=[CAPTIONS, *SPLITS.values()])
    files = CaptionFiles.read(directory, at_least=_AT_LEAST)
    return CaptionData(**vars(files), features=Features.read(find_features(directory)))


def bleu_metrics() -> dict[str, Bleu]:
    """BLEU-1 to BLEU-4 of all words: small letters, no punctuation, neither the beginning nor the end."""
    return {f"BLEU-{order}": Bleu(order=order) for order in range(1, 5)}


def _told(model: nn.Module, batch: Any) -> tuple[Tensor, Tensor]:
    """Scores of the next word at each place that counts, and the words there."""
    features, words = batch
    inputs, targets, kept = next_words(words)
    return model(features.float(), inputs, kept), targets.masked_fill(~kept, _NO_PLACE)


def _loss(outputs: Tensor, targets: Tensor, *, mean_words: float) -> Tensor:
    """The cross entropy of a caption, the mean over captions, in units of a word.

    Divided by the words that captions have on average, not by those of this batch: a sum that several nodes divide by
    different numbers would not be the sum that one node has.
    """
    entropies = cross_entropy(outputs, targets[targets != _NO_PLACE], reduction="sum")
    return entropies / (len(targets) * mean_words)


def _said(model: nn.Module, batch: Any) -> tuple[Tensor, Tensor]:
    """Sentences about photographs, and what people said."""
    assert isinstance(model, CaptionNet)
    features, references = batch
    return greedy(model, features.float(), longest=LONGEST), references


def _prepared(raw: Any, *, features: Features) -> Tensor:
    """Features of a photograph of the data set by its name, or what the same encoder has made of another."""
    if isinstance(raw, str | Path):
        if str(raw) in features.names:
            return features.of([str(raw)])[0].float()
        if Path(raw).is_file():
            raise ConfigError(f"{raw} has no features yet: give the encoder that the others are from, --encoder NAME")
        raise ConfigError(f"{str(raw)!r} is no file, and no photograph with features in the data set")
    vector = torch.as_tensor(raw).flatten().float()
    if len(vector) != features.width:
        raise ConfigError(
            f"this encoder gives {len(vector):,} numbers, and the network was trained with {features.width:,}: give "
            "the encoder that its features were computed by"
        )
    return vector


def _answers(model: nn.Module, features: Sequence[Tensor], *, beam: int = 3) -> list[Tensor]:
    """The words of a sentence about each, by number."""
    assert isinstance(model, CaptionNet)
    return list(sentences(model, torch.stack(list(features)), beam=beam, longest=LONGEST))


def _answer(model: nn.Module, features: Tensor, *, beam: int = 3) -> Tensor:
    return _answers(model, [features], beam=beam)[0]


def flickr8k_captions(data: Path | None = None) -> Workload:
    """Captions of photographs, by the network of the Quito thesis: features, embedding and LSTM.

    Its batch is that of the thesis' two workers together.

    It is looked at on the development split: the test split is for the end.
    """
    content = load_caption_data(data)
    train = content.sentences("train")
    words = train.tensors[1]
    mean_words = float((words != 0).sum()) / len(words)
    return Workload(
        name="flickr8k-captions",
        model=partial(CaptionNet, content.vocabulary.known, content.features.width),
        train=train,
        test=content.sentences("dev"),
        predict=_told,
        loss=partial(_loss, mean_words=mean_words),
        metrics={"perplexity": Perplexity(padding=_NO_PLACE)},
        further_tests=(FurtherTest(data=content.photographs("dev"), predict=_said, metrics=bleu_metrics()),),
        main="BLEU-1",
        optimizer=partial(torch.optim.Adam, lr=0.002),
        schedule=warm_up_and_fall,
        batch=64,
        epochs=10,
        prepare=partial(_prepared, features=content.features),
        answer=_answer,
        answer_many=_answers,
        present=lambda words: content.vocabulary.text(words.tolist()),
        references={split: {name: content.captions[name] for name in names} for split, names in content.names.items()},
    )
