"""Captions: words, network, search for sentences, and a whole run that is asked what it sees."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from made_photographs import WIDTH, make_flickr8k
from PIL import Image
from torch.nn.functional import cross_entropy

import minga
from minga.cli.main import application
from minga.data.formats.vocabulary import END, START, UNKNOWN, Vocabulary, padded, words_of
from minga.errors import ConfigError, DataError
from minga.metrics.bleu_of_texts import bleu_of_texts
from minga.runs.workload import load_workload
from minga.testing.worlds import train_in_threads
from minga.training.trained import load_trained
from minga.workloads.captions.decoding import beam_search, greedy, sentences
from minga.workloads.captions.encoders import Features, encode, load_encoder, read_colour, save_features
from minga.workloads.captions.model import CaptionNet, next_words


def test_words_are_small_letters_without_punctuation_and_numbers() -> None:
    assert words_of("A dog 's Ball , 22 cats -- it's !") == ["a", "dog", "s", "ball", "cats", "it's"]


def test_rare_words_are_unknown_to_the_network_but_not_to_references() -> None:
    vocabulary = Vocabulary.of(["a dog", "a dog", "a cat"], ["a bird"], at_least=2)
    assert vocabulary.words[3:] == ["a", "dog", "cat", "bird"] and vocabulary.known == 5
    assert vocabulary.encode("A dog, a cat.") == [START, 3, 4, 3, UNKNOWN, END]
    assert vocabulary.reference("a cat, a bird") == [3, 5, 3, 6]
    assert vocabulary.text([3, 4, END, 4]) == "a dog"


def test_each_place_is_learned_up_to_the_first_end() -> None:
    words = torch.from_numpy(padded([[START, 5, 6, END], [START, 7, END], [START, 8, END], [END] * 9]))[:3]
    inputs, targets, kept = next_words(words)
    assert inputs.tolist() == [[START, 5, 6], [START, 7, END], [START, 8, END]]
    assert targets[kept].tolist() == [5, 6, END, 7, END, 8, END]


def test_padding_changes_nothing() -> None:
    torch.manual_seed(0)
    model = CaptionNet(9, WIDTH).eval()
    features, words = torch.randn(2, WIDTH), torch.from_numpy(padded([[START, 5, 6, END], [START, 7, END]]))
    inputs, targets, kept = next_words(words)
    together = cross_entropy(model(features, inputs, kept), targets[kept], reduction="sum")
    alone = 0.0
    for row in range(2):
        inputs, targets, kept = next_words(words[row : row + 1])
        one = model(features[row : row + 1], inputs)
        alone += float(cross_entropy(one.flatten(0, 1), targets.flatten(), reduction="sum").detach())
    assert float(together.detach()) == pytest.approx(alone, rel=1e-5)


def test_word_by_word_is_the_same_network() -> None:
    torch.manual_seed(0)
    model = CaptionNet(9, WIDTH).eval()
    features, words = torch.randn(3, WIDTH), torch.randint(1, 9, (3, 5))
    whole = model(features, words)
    picture, memory = model.begin(features)
    for place in range(5):
        scores, memory = model.next_word(picture, words[:, place], memory)
        torch.testing.assert_close(scores, whole[:, place])


def test_the_thesis_network_has_its_layers() -> None:
    model = CaptionNet(2531, 4096)
    assert model.picture[0].p == model.before_memory.p == 0.5
    assert [
        tuple(layer.weight.shape) for layer in (model.picture[1], model.embedding, model.merged[0], model.outputs)
    ] == [
        (256, 4096),
        (2531, 256),
        (256, 256),
        (2531, 256),
    ]
    assert (model.memory.input_size, model.memory.hidden_size, model.memory.num_layers) == (256, 256, 1)


def likelihood(model: CaptionNet, features: torch.Tensor, sentence: list[int]) -> float:
    """Of a sentence with its END, each word given those before; never START nor UNKNOWN."""
    scores = model(features, torch.tensor([[START, *sentence[:-1]]]))
    scores[..., [START, UNKNOWN]] = -torch.inf
    return float(-cross_entropy(scores[0], torch.tensor(sentence), reduction="sum"))


def test_a_beam_that_is_wide_enough_finds_the_best_sentence_of_all() -> None:
    torch.manual_seed(3)
    model = CaptionNet(6, WIDTH).eval()
    for parameter in model.outputs.parameters():
        parameter.data.mul_(8)  # sure of itself, so that the greedy way goes wrong
    model.outputs.bias.data[END] += 0.5
    features = torch.randn(12, WIDTH)
    with torch.no_grad():
        found = beam_search(model, features, 40, longest=3, length_power=0.0)
        quick = greedy(model, features, longest=3)
        differ = 0
        for row in range(len(features)):
            one = features[row : row + 1]
            whole = [[*words, END] for n in range(3) for words in itertools.product((3, 4, 5), repeat=n)]
            # Sentences that are cut at the longest length have no END.
            whole += [list(words) for words in itertools.product((3, 4, 5), repeat=3)]
            best = max(whole, key=lambda sentence: likelihood(model, one, sentence))
            expected = [*best, END, END, END][:3]
            assert found[row].tolist() == expected[: found.shape[1]]
            differ += quick[row].tolist() != expected[: quick.shape[1]]
    assert differ  # otherwise this test shows nothing


def test_a_beam_of_one_is_greedy() -> None:
    torch.manual_seed(0)
    model, features = CaptionNet(20, WIDTH).eval(), torch.randn(5, WIDTH)
    with torch.no_grad():
        one, quick = beam_search(model, features, 1, longest=6), greedy(model, features, longest=6)
        assert one.tolist() == quick.tolist() == sentences(model, features, beam=1, longest=6).tolist()
    with pytest.raises(ConfigError, match="at least 1 sentence wide, not 0"):
        sentences(model, features, beam=0, longest=6)


def test_the_loss_of_several_nodes_is_that_of_one(tmp_path: Path) -> None:
    """Sentences are of different lengths: a mean over the words of each batch would not add up."""
    workload = load_workload("flickr8k-captions", str(make_flickr8k(tmp_path)))
    torch.manual_seed(0)
    model = workload.model().eval()
    batch = workload.train[:8]

    def loss_of(part: slice) -> float:
        outputs, targets = workload.predict(model, tuple(tensor[part] for tensor in batch))
        return float(workload.loss(outputs, targets).detach())

    assert loss_of(slice(0, 8)) == pytest.approx((3 * loss_of(slice(0, 3)) + 5 * loss_of(slice(3, 8))) / 8, rel=1e-5)


@pytest.mark.parametrize("strategy", ["ring", "ps:mode=async", "local_sgd:period=4", "switch:at=10"])
def test_the_lstm_trains_with_strategies_of_each_kind(tmp_path: Path, strategy: str) -> None:
    workload = load_workload("flickr8k-captions", str(make_flickr8k(tmp_path)))
    experiment = minga.Experiment(
        workload="flickr8k-captions",
        strategy=strategy,  # type: ignore[arg-type]
        cluster=minga.Cluster(nodes=2),
        training=minga.Training(steps=25, total_batch=16, evaluate_every=0),
    )
    replica = train_in_threads(experiment, workload, timeout_seconds=90)[0]
    replica.model.eval()
    with torch.no_grad():
        outputs, targets = workload.predict(replica.model, workload.test[:])  # type: ignore[index]
        loss = float(workload.loss(outputs, targets))
    assert loss < 1.5  # at first it is ln 18 = 2.9


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_flickr8k(tmp_path_factory.mktemp("captions"))


@pytest.fixture(scope="module")
def run(place: Path) -> str:
    experiment = minga.Experiment(
        workload="flickr8k-captions",
        data=str(place),
        strategy="ring",  # type: ignore[arg-type]
        cluster=minga.Cluster(nodes=2),
        training=minga.Training(epochs=25, total_batch=16, evaluate_every=5),
        runs=str(place / "runs"),
    )
    summary = minga.run(experiment)
    assert summary.metric == "BLEU-1" and summary.quality is not None and summary.quality > 0.6
    assert list(summary.metrics) == ["loss", "BLEU-1", "perplexity", "BLEU-2", "BLEU-3", "BLEU-4"]
    return summary.run


def test_a_run_tells_what_it_sees(run: str, place: Path) -> None:
    trained = load_trained(Path(run))
    references = trained.workload.references["test"]
    told = [trained.workload.respond(trained.model, name, beam=3) for name in references]
    right = [any(word in caption for word in ("dog", "cat", "bird", "horse")) for caption in told]
    assert all(right)
    truth = [captions[1].split()[2] for captions in references.values()]
    assert sum(animal in caption.split() for animal, caption in zip(truth, told, strict=True)) >= 0.8 * len(told)
    assert bleu_of_texts(told, list(references.values()))["BLEU-1"] > 0.6


def test_the_command_tells_scores_and_refuses(run: str, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def minga_caption(*words: str) -> str:
        application(["caption", *words], standalone_mode=False)
        return capsys.readouterr().out

    name = "0059_photo.jpg"
    sentence = minga_caption(name, "--run", run).strip()
    assert len(sentence.split()) >= 3
    assert json.loads(minga_caption(name, "--run", run, "--json")) == {name: sentence}
    scored = json.loads(minga_caption("--score", "test", "--beam", "2", "--run", run, "--json"))
    assert scored["split"] == "test" and scored["BLEU-4"] <= scored["BLEU-1"] <= 1
    page = place / "page.html"
    minga_caption("--page", str(page), "--run", run)
    assert page.read_text().count("<figure>") == 10 and f"{sentence}</p>" in page.read_text()
    for words, says in [
        ([name], "--run"),
        (["nothing.jpg", "--run", run], "'nothing.jpg' is no file"),
        (["--run", run], "give a picture"),
        ([name, "--run", run, "--beam", "0"], "--beam"),
        (["--score", "tset", "--run", run], "Did you mean 'test'"),
    ]:
        with pytest.raises(ConfigError, match=says):
            minga_caption(*words)


ENCODER = """
import torch
from torch import nn

class Bright(nn.Module):
    def forward(self, pictures):
        return pictures.mean(dim=(1, 2, 3)).unsqueeze(1).expand(-1, {width})

encoder = Bright
"""


def test_any_module_is_an_encoder(run: str, place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "own.py").write_text(ENCODER.format(width=WIDTH))
    (tmp_path / "wide.py").write_text(ENCODER.format(width=7))
    folder = tmp_path / "photographs"
    folder.mkdir()
    for number in range(3):
        Image.fromarray(np.full((30, 50 + number, 3), 90 * number, dtype=np.uint8)).save(folder / f"{number}.png")
    application(
        ["caption", str(folder / "1.png"), "--run", run, "--encoder", f"{tmp_path}/own.py"], standalone_mode=False
    )
    assert capsys.readouterr().out.strip()
    with pytest.raises(ConfigError, match="gives 7 numbers, and the network was trained with 16"):
        command = ["caption", str(folder / "1.png"), "--run", run, "--encoder", f"{tmp_path}/wide.py"]
        application(command, standalone_mode=False)
    with pytest.raises(ConfigError, match="give the encoder"):
        application(["caption", str(folder / "1.png"), "--run", run], standalone_mode=False)
    target = tmp_path / "features_own.npz"
    command = ["caption", str(folder), "--encoder", f"{tmp_path}/own.py:encoder", "--features-to", str(target)]
    application(command, standalone_mode=False)
    with np.load(target, allow_pickle=False) as content:
        assert content["names"].tolist() == ["0.png", "1.png", "2.png"] and content["feats"].dtype == np.float16
        # Brighter pictures have larger numbers.
        assert content["feats"][0, 0] < content["feats"][1, 0] < content["feats"][2, 0]


def test_a_damaged_photograph_does_not_cost_the_features_of_the_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "own.py").write_text(ENCODER.format(width=3))
    folder = tmp_path / "photographs"
    folder.mkdir()
    for number in range(20):
        Image.new("RGB", (30, 30), (number, 0, 0)).save(folder / f"{number:02}.png")
    (folder / "05.png").write_bytes(b"no picture")
    (folder / "17.png").write_bytes((folder / "17.png").read_bytes()[:40])
    target = tmp_path / "features.npz"
    command = ["caption", str(folder), "--encoder", f"{tmp_path}/own.py", "--features-to", str(target)]
    application([*command, "--json"], standalone_mode=False)
    told = json.loads(capsys.readouterr().out)
    assert told["photographs"] == 18 and sorted(told["skipped"]) == ["05.png", "17.png"]
    with np.load(target, allow_pickle=False) as content:
        assert len(content["names"]) == len(content["feats"]) == 18 and "05.png" not in content["names"]
    application(command, standalone_mode=False)
    shown = capsys.readouterr().err
    assert "05.png can't be read as a picture" in shown and "18 photographs" in shown and "2 were skipped" in shown


def test_files_of_the_same_name_in_two_folders(
    run: str, place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "own.py").write_text(ENCODER.format(width=WIDTH))
    files = [tmp_path / folder / "1.png" for folder in ("a", "b")]
    for file in files:
        file.parent.mkdir()
        Image.new("RGB", (30, 30)).save(file)
    command = ["caption", *map(str, files), "--run", run, "--encoder", f"{tmp_path}/own.py", "--json"]
    application(command, standalone_mode=False)
    assert list(json.loads(capsys.readouterr().out)) == list(map(str, files))


def test_photographs_are_upright_and_of_more_than_8_bits(tmp_path: Path) -> None:
    notes = Image.Exif()
    notes[0x0112] = 3  # the camera was upside down
    pixels = np.zeros((224, 224), dtype=np.uint16)
    pixels[:112] = 65535
    Image.fromarray(pixels).save(tmp_path / "1.png", exif=notes)
    below = read_colour(tmp_path / "1.png")
    assert float(below[:, 200:].min()) > 2 and float(below[:, :20].max()) < -1.7
    Image.fromarray(pixels // 2).save(tmp_path / "2.png")
    assert abs(float(read_colour(tmp_path / "2.png")[0, 0, 0])) < 0.2  # grey, though 8 bits would be full


def test_features_are_numbers(tmp_path: Path) -> None:
    save_features(tmp_path / "large.npz", Features(["a.jpg"], torch.tensor([[0.5, 1e6]])), "own")
    assert Features.read(tmp_path / "large.npz").of(["a.jpg"]).tolist() == [[0.5, 1e6]]
    (tmp_path / "own.py").write_text(ENCODER.format(width=3).replace("return ", "return float('nan') * "))
    Image.new("RGB", (30, 30)).save(tmp_path / "1.png")
    with pytest.raises(DataError, match=r"own\.py makes NaN or infinite values of 1\.png"):
        encode(load_encoder(f"{tmp_path}/own.py"), [tmp_path / "1.png"])


@pytest.mark.parametrize("option", ["--page", "--features-to"])
def test_files_that_cant_be_written_are_told_before_any_work(tmp_path: Path, option: str) -> None:
    with pytest.raises(ConfigError, match=r"there is no directory .*nowhere"):  # though there is no such run either
        application(["caption", option, f"{tmp_path}/nowhere/file", "--run", "none"], standalone_mode=False)


def test_encoders_that_are_none_are_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="Did you mean 'vgg16'"):
        load_encoder("vgg61")
    (tmp_path / "own.py").write_text("encoder = 3\n")
    with pytest.raises(ConfigError, match="is a int, not a torch"):
        load_encoder(f"{tmp_path}/own.py")
    (tmp_path / "broken.jpg").write_bytes(b"no picture")
    (tmp_path / "module.py").write_text(ENCODER.format(width=2))
    with pytest.raises(DataError, match=r"broken\.jpg can't be read as a picture"):
        encode(load_encoder(f"{tmp_path}/module.py"), [tmp_path / "broken.jpg"])


def test_features_by_name() -> None:
    features = Features(["a", "b"], torch.eye(2, 3))
    assert features.width == 3 and features.of(["b", "a", "b"]).tolist() == [[0, 1, 0], [1, 0, 0], [0, 1, 0]]
    with pytest.raises(DataError, match="no features of c and 1 others"):
        features.of(["a", "c", "d"])


def test_saved_features_are_read_again(tmp_path: Path) -> None:
    save_features(tmp_path / "features.npz", Features(["a.jpg"], torch.tensor([[0.5, 2.0]])), "own")
    assert Features.read(tmp_path / "features.npz").of(["a.jpg"]).tolist() == [[0.5, 2.0]]
