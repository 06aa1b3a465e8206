"""Data sets in the forms that people have them in: arrays, folders of pictures, tables, texts, captions."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from minga.data.readers import Origin, open_reader, origin_of_path
from minga.data.readers.arrays import read_cifar10_records
from minga.data.readers.base import BadSample, Picture
from minga.data.readers.captions import BEGIN, END, PADDING, UNKNOWN, read_captions, read_features, words_of
from minga.data.readers.tables import TableChoice
from minga.errors import ConfigError, DataError

# --- arrays --------------------------------------------------------------------------------------------------------


def cifar10(folder: Path, records: int = 3) -> Path:
    """Six files; each pixel's value is the number of its file."""
    for number in range(6):
        name = "test_batch.bin" if number == 5 else f"data_batch_{number + 1}.bin"
        record = bytes([number]) + bytes([number]) * 3072
        (folder / name).write_bytes(record * records)
    return folder


def test_cifar10(tmp_path: Path) -> None:
    classes = tuple("abcdefghij")
    reader = open_reader(Origin(reader="cifar10", path=str(cifar10(tmp_path)), classes=classes))
    assert len(reader) == 18 and reader.classes == list(classes)
    assert reader.given_parts is not None and reader.given_parts.tolist() == [0] * 15 + [2] * 3
    sample = reader.read(4)
    assert sample["inputs"].shape == (3, 32, 32) and int(sample["inputs"].max()) == 1 and int(sample["targets"]) == 1


def test_cifar10_in_another_shape(tmp_path: Path) -> None:
    origin = Origin(reader="cifar10", path=str(cifar10(tmp_path)), picture=Picture(width=16, height=8, grey=True))
    assert open_reader(origin).read(0)["inputs"].shape == (1, 8, 16)


def test_cifar10_may_be_packed(tmp_path: Path) -> None:
    cifar10(tmp_path)
    plain = tmp_path / "data_batch_1.bin"
    plain.with_name("data_batch_1.bin.gz").write_bytes(gzip.compress(plain.read_bytes()))
    expected = read_cifar10_records(plain)[0]
    plain.unlink()
    assert np.array_equal(read_cifar10_records(plain)[0], expected)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"12345", "no records of 3,073"),
        (b"", "no records"),
        (bytes([11]) + bytes(3072), "class 11, but there are ten"),
    ],
)
def test_a_damaged_cifar10_file_is_told(tmp_path: Path, content: bytes, words: str) -> None:
    (tmp_path / "x.bin").write_bytes(content)
    with pytest.raises(DataError, match=words):
        read_cifar10_records(tmp_path / "x.bin")


def test_idx_files(tmp_path: Path) -> None:
    for part, count in (("train", 4), ("t10k", 2)):
        pictures = np.arange(count * 6, dtype=np.uint8).reshape(count, 2, 3)
        header = b"\0\0\x08\x03" + struct.pack(">3I", *pictures.shape)
        (tmp_path / f"{part}-images-idx3-ubyte").write_bytes(header + pictures.tobytes())
        labels = b"\0\0\x08\x01" + struct.pack(">I", count) + bytes(range(count))
        (tmp_path / f"{part}-labels-idx1-ubyte.gz").write_bytes(gzip.compress(labels))
    reader = open_reader(Origin(reader="idx", path=str(tmp_path)))
    assert len(reader) == 6 and reader.classes == ["0", "1", "2", "3"]
    assert reader.read(1)["inputs"].tolist() == [[[6, 7, 8], [9, 10, 11]]]
    (tmp_path / "t10k-images-idx3-ubyte").unlink()
    with pytest.raises(DataError, match="has no t10k-images-idx3-ubyte"):
        open_reader(Origin(reader="idx", path=str(tmp_path)))


# --- folders of pictures -------------------------------------------------------------------------------------------


def picture(path: Path, color: tuple[int, int, int] = (10, 20, 30), size: tuple[int, int] = (8, 6)) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, color).save(path)
    return path


def test_a_folder_per_class(tmp_path: Path) -> None:
    picture(tmp_path / "tulip" / "b.png", (1, 2, 3))
    picture(tmp_path / "rose" / "a.jpg")
    (tmp_path / "rose" / "notes.txt").write_text("no picture")
    picture(tmp_path / "__MACOSX" / "rose" / "a.png")
    reader = open_reader(origin_of_path(tmp_path))
    assert reader.classes == ["rose", "tulip"] and reader.labels is not None and reader.labels.tolist() == [0, 1]
    assert reader.name_of(1) == "tulip/b.png" and reader.given_parts is None
    assert reader.read(1)["inputs"].shape == (3, 6, 8)
    assert reader.read(1)["inputs"][:, 0, 0].tolist() == [1, 2, 3]


def test_parts_that_folders_say(tmp_path: Path) -> None:
    for part in ("train", "val", "test"):
        picture(tmp_path / part / "rose" / f"{part}.png")
    reader = open_reader(origin_of_path(tmp_path))
    assert reader.classes == ["rose"]
    assert {reader.name_of(i): int(p) for i, p in enumerate(reader.given_parts)} == {  # type: ignore[arg-type]
        "test/rose/test.png": 2,
        "train/rose/train.png": 0,
        "val/rose/val.png": 1,
    }


def test_folders_in_classes_and_around_them(tmp_path: Path) -> None:
    for name in ("rose/red", "rose/white", "tulip/red"):
        picture(tmp_path / "archive" / "flowers" / name / "1.png")
    reader = open_reader(origin_of_path(tmp_path))
    assert reader.classes == ["rose", "tulip"] and reader.labels is not None and reader.labels.tolist() == [0, 0, 1]


def test_only_some_folders_are_classes(tmp_path: Path) -> None:
    picture(tmp_path / "Fish" / "Trout" / "Trout" / "1.png")
    picture(tmp_path / "Fish" / "Trout" / "Trout GT" / "1.png")
    reader = open_reader(Origin(reader="pictures", path=str(tmp_path), class_folders="* GT"))
    assert reader.classes == ["Trout"] and [reader.name_of(0)] == ["Fish/Trout/Trout GT/1.png"] and len(reader) == 1


def test_pictures_are_brought_to_one_shape(tmp_path: Path) -> None:
    picture(tmp_path / "a" / "1.png", size=(40, 30))
    picture(tmp_path / "a" / "2.png", size=(9, 9))
    Image.new("P", (5, 5)).save(tmp_path / "a" / "3.png")
    Image.new("RGBA", (5, 5)).save(tmp_path / "a" / "4.png")
    origin = Origin(reader="pictures", path=str(tmp_path), picture=Picture(width=7, height=3, grey=True))
    reader = open_reader(origin)
    assert [reader.read(index)["inputs"].shape for index in range(4)] == [(1, 3, 7)] * 4
    with pytest.raises(DataError, match=r"several sizes .*--resize"):
        open_reader(origin_of_path(tmp_path))


def test_bad_pictures_are_told_one_by_one(tmp_path: Path) -> None:
    whole = picture(tmp_path / "a" / "1.png", size=(64, 64))
    (tmp_path / "a" / "2.png").write_bytes(whole.read_bytes()[:60])
    (tmp_path / "a" / "3.jpg").write_bytes(b"no picture at all")
    (tmp_path / "a" / "4.png").touch()
    origin = Origin(reader="pictures", path=str(tmp_path), picture=Picture(width=64, height=64))
    reader = open_reader(origin)
    outcomes = list(reader.samples(range(4)))
    assert [isinstance(each, BadSample) for each in outcomes] == [False, True, True, True]
    assert "can't be read" in str(outcomes[2])


def test_a_picture_that_would_fill_the_memory_is_bad(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    picture(tmp_path / "a" / "1.png", size=(64, 64))
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1000)
    reader = open_reader(Origin(reader="pictures", path=str(tmp_path), picture=Picture(width=4, height=4)))
    with pytest.raises(BadSample, match="exceeds limit"):
        reader.read(0)


def test_a_folder_without_pictures(tmp_path: Path) -> None:
    picture(tmp_path / "lonely.png")
    with pytest.raises(DataError, match="folder per class"):
        open_reader(origin_of_path(tmp_path))


# --- tables --------------------------------------------------------------------------------------------------------

CSV = """size, color, weight, kind
1, red, 0.5, apple
2, green, 1.5, pear
3, red, 2.5, apple
"""


def table(path: Path, text: str = CSV, **choice: Any) -> Any:
    path.write_text(text)
    return open_reader(Origin(reader="table", path=str(path), table=TableChoice(**choice)))


def test_a_table_with_classes(tmp_path: Path) -> None:
    reader = table(tmp_path / "fruit.csv")
    assert reader.classes == ["apple", "pear"] and reader.labels.tolist() == [0, 1, 0]
    assert reader.facts["columns"] == ["size", "color=green", "color=red", "weight"]
    assert reader.read(1)["inputs"].tolist() == [2, 1, 0, 1.5] and int(reader.read(1)["targets"]) == 1


def test_a_table_with_numbers_to_tell(tmp_path: Path) -> None:
    reader = table(tmp_path / "fruit.csv", target="weight", columns=("size",))
    assert reader.classes == () and reader.facts["task"] == "numbers"
    assert reader.read(2) == {"inputs": np.array([3.0]), "targets": np.float32(2.5)}


def test_whole_numbers_are_classes_where_they_are_few(tmp_path: Path) -> None:
    assert table(tmp_path / "a.csv", target="size").classes == ["1", "2", "3"]
    assert table(tmp_path / "b.csv", target="size", task="numbers").classes == ()
    assert table(tmp_path / "c.csv", "x,y\n1,10\n1,9\n1,2\n").classes == ["2", "9", "10"]


def test_numbers_that_are_names(tmp_path: Path) -> None:
    reader = table(tmp_path / "a.csv", columns=("size",), words=("size",))
    assert reader.facts["columns"] == ["size=1", "size=2", "size=3"]


def test_tabs_and_packed_tables(tmp_path: Path) -> None:
    assert table(tmp_path / "fruit.tsv", CSV.replace(", ", "\t")).classes == ["apple", "pear"]
    (tmp_path / "fruit.csv.gz").write_bytes(gzip.compress(CSV.encode()))
    assert len(open_reader(origin_of_path(tmp_path / "fruit.csv.gz"))) == 3


def test_parquet_gives_the_same_as_csv(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    columns = {"size": [1, 2, 3], "color": ["red", "green", "red"], "weight": [0.5, 1.5, None]}
    columns["kind"] = ["apple", "pear", "apple"]
    parquet.write_table(pyarrow.table(columns), tmp_path / "fruit.parquet")
    reader = open_reader(origin_of_path(tmp_path / "fruit.parquet"))
    plain = table(tmp_path / "fruit.csv")
    assert reader.facts == plain.facts and reader.classes == plain.classes
    assert np.array_equal(reader.read(1)["inputs"], plain.read(1)["inputs"])
    assert isinstance(next(reader.samples([2])), BadSample)
    (tmp_path / "broken.parquet").write_bytes(b"PAR1 not")
    with pytest.raises(DataError, match="Parquet"):
        open_reader(origin_of_path(tmp_path / "broken.parquet"))


HOLES = "a,b,y\n1,x,0\n,x,1\n3,,1\n5,z,0\n7,z\n7,z,\n"


def test_rows_with_holes_are_skipped(tmp_path: Path) -> None:
    outcomes = list(table(tmp_path / "holes.csv", HOLES, target="y").samples(range(6)))
    assert [str(each) if isinstance(each, BadSample) else "fine" for each in outcomes] == [
        "fine",
        "its 'a' is empty",
        "its 'b' is empty",
        "fine",
        "it has 2 fields instead of 3",
        "its target is empty",
    ]


def test_holes_filled(tmp_path: Path) -> None:
    reader = table(tmp_path / "holes.csv", HOLES, target="y", missing="mean")
    assert reader.facts["columns"] == ["a", "b=x", "b=z", "b="]
    assert reader.read(1)["inputs"].tolist() == pytest.approx([(1 + 3 + 5 + 7) / 4, 1, 0, 0])
    assert reader.read(2)["inputs"].tolist() == [3, 0, 0, 1]


@pytest.mark.parametrize(
    ("text", "choice", "words"),
    [
        (CSV, {"target": "colour"}, "unknown column of x.csv 'colour'.*Did you mean 'color'"),
        (CSV, {"task": "clases"}, "unknown task of a table"),
        (CSV, {"target": "color", "task": "numbers"}, "has words, such as 'red'"),
        ("a,a\n1,2\n", {}, "two columns 'a'"),
        ("", {}, "is empty"),
        ("a,b\n", {}, "no rows"),
        ("only\n1\n", {}, "no column besides 'only'"),
    ],
)
def test_tables_that_make_no_sense(tmp_path: Path, text: str, choice: dict[str, Any], words: str) -> None:
    with pytest.raises((DataError, ConfigError), match=words):
        table(tmp_path / "x.csv", text, **choice)


# --- texts ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("block", [3, 7, 1 << 20])
def test_a_text_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    monkeypatch.setattr("minga.data.readers.texts._BLOCK", block)
    (tmp_path / "x.txt").write_text("hello wörld, hello\n", encoding="utf-8")
    reader = open_reader(Origin(reader="text", path=str(tmp_path / "x.txt"), context=4))
    characters = reader.facts["characters"]
    found = [
        ("".join(characters[i] for i in s["inputs"]), "".join(characters[i] for i in s["targets"]))  # type: ignore[index]
        for s in reader.samples(range(len(reader)))
    ]
    assert found == [("hell", "ello"), ("o wö", " wör"), ("rld,", "ld, "), (" hel", "hell")]
    assert [s["inputs"].tolist() for s in reader.samples([1, 3])] == [  # type: ignore[index]
        [characters.index(c) for c in "o wö"],
        [characters.index(c) for c in " hel"],
    ]


def test_texts_that_are_none(tmp_path: Path) -> None:
    (tmp_path / "short.txt").write_text("abc")
    with pytest.raises(DataError, match="don't fill a piece of 64"):
        open_reader(origin_of_path(tmp_path / "short.txt"))
    (tmp_path / "bytes.txt").write_bytes(bytes(range(256)))
    with pytest.raises(DataError, match="UTF-8"):
        open_reader(origin_of_path(tmp_path / "bytes.txt"))


# --- captions ------------------------------------------------------------------------------------------------------


def captioned(folder: Path) -> Path:
    lines = [f"{name}.jpg#{number}\t{word} dog , running !" for name in "abcd" for number, word in enumerate("AB")]
    (folder / "Flickr8k.token.txt").write_text("\n".join([*lines, "odd.jpg.1#0\tNo picture ."]) + "\n")
    (folder / "Flickr_8k.trainImages.txt").write_text("a.jpg\nb.jpg\n")
    (folder / "Flickr_8k.devImages.txt").write_text("c.jpg\n")
    (folder / "Flickr_8k.testImages.txt").write_text("d.jpg\n")
    features = np.arange(8, dtype=np.float16).reshape(4, 2)
    np.savez(folder / "features_small.npz", names=np.array([f"{n}.jpg" for n in "dcba"]), feats=features)
    return folder


def test_captions_with_features(tmp_path: Path) -> None:
    reader = open_reader(Origin(reader="captions", path=str(captioned(tmp_path))))
    assert [reader.name_of(index) for index in range(4)] == ["a.jpg", "b.jpg", "c.jpg", "d.jpg"]
    assert reader.given_parts is not None and reader.given_parts.tolist() == [0, 0, 1, 2]
    words = reader.facts["vocabulary"]
    assert words[:4] == ["<padding>", "<begin>", "<end>", "<unknown>"] and words[4:] == ["a", "b", "dog", "running"]
    sample = reader.read(0)
    assert sample["inputs"].tolist() == [6, 7]
    assert [words[number] for number in sample["targets"][1]] == ["<begin>", "b", "dog", "running", "<end>"]
    assert (PADDING, BEGIN, END, UNKNOWN) == (0, 1, 2, 3)


def test_features_that_could_run_are_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", names=np.array([{"a": 1}], dtype=object), feats=np.zeros((1, 2)))
    with pytest.raises(DataError, match="can be read"):
        read_features(tmp_path / "x.npz")
    (tmp_path / "y.npz").write_bytes(b"nothing")
    with pytest.raises(DataError, match="can be read"):
        read_features(tmp_path / "y.npz")
    np.savez(tmp_path / "z.npz", names=np.array(["a"]), feats=np.zeros((2, 2)))
    with pytest.raises(DataError, match="don't belong together"):
        read_features(tmp_path / "z.npz")


def test_captions_that_are_none(tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_text("a.jpg#0\tfine\nnonsense\n")
    with pytest.raises(DataError, match="line 2"):
        read_captions(tmp_path / "x.txt")


def test_words_are_without_punctuation() -> None:
    assert words_of("A dog's ball , in-line #3 .") == ["a", "dog's", "ball", "in", "line", "3"]


# --- which reader --------------------------------------------------------------------------------------------------


def test_what_is_not_known_is_told(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="neither a data set that Minga knows"):
        origin_of_path(tmp_path / "nowhere")
    (tmp_path / "x.docx").touch()
    with pytest.raises(DataError, match=r"known are folders of pictures, tables .* and text"):
        origin_of_path(tmp_path / "x.docx")
