"""Folders of pictures as people have them: parts, leftovers, cameras that were turned, pictures of more than 8 bits."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest
from PIL import Image

from minga.data.formats import Origin, open_reader, origin_of_path
from minga.data.formats.base import BadSample, PictureShape
from minga.data.prepared.shard_file import Field
from minga.data.preparing import shard_job
from minga.data.preparing.folder import new_folder
from minga.data.preparing.shards import ShardPlaces
from minga.errors import DataError


def picture(path: Path, size: tuple[int, int] = (4, 3)) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, (10, 20, 30)).save(path)
    return path


def labels(folder: Path) -> list[int]:
    found = open_reader(origin_of_path(folder)).labels
    assert found is not None
    return found.tolist()


# --- which folders are classes ------------------------------------------------------------------------------------


def test_what_is_prepared_inside_of_its_source_changes_no_classes(tmp_path: Path) -> None:
    for name in ("rose", "tulip"):
        picture(tmp_path / "flowers" / name / "1.png")
    before = labels(tmp_path)
    with new_folder(tmp_path / "prepared" / "flowers"):
        assert labels(tmp_path) == before == [0, 1]
    with new_folder(tmp_path / "out") as folder:
        (folder / "train-00000.safetensors").touch()
        assert labels(tmp_path) == before
    assert labels(tmp_path) == before


def test_classes_that_change_while_samples_are_prepared_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shard_job, "_worker", None)
    for name in ("rose", "tulip"):
        picture(tmp_path / "flowers" / name / "1.png")
    origin = origin_of_path(tmp_path / "flowers")
    places = ShardPlaces.of(tmp_path, {"inputs": Field("uint8", (1,))}, (2, 0, 0), 1 << 10)
    job = shard_job.ShardJob(places, 1.0, moments=False, outline=shard_job.outline_of(open_reader(origin)))
    (tmp_path / "flowers" / "rose").rename(tmp_path / "flowers" / "violet")
    shard_job._begin(origin, job)
    nothing = np.empty(0, dtype=np.int64)
    with pytest.raises(DataError, match=r"2 samples of 2 classes now.*somebody changes the data set"):
        shard_job._do(shard_job.Chunk(nothing, nothing.astype(np.int8), nothing))


def test_leftovers_beside_parts_are_passed_over(tmp_path: Path) -> None:
    for part in ("train", "test"):
        picture(tmp_path / part / "rose" / "1.png")
    picture(tmp_path / "__MACOSX" / "train" / "rose" / "1.png")
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "read me.txt").touch()
    reader = open_reader(origin_of_path(tmp_path))
    assert reader.classes == ["rose"] and reader.given_parts is not None and reader.given_parts.tolist() == [2, 0]


def test_a_folder_that_is_no_part_beside_parts_is_told(tmp_path: Path) -> None:
    for name in ("train", "test", "extra"):
        picture(tmp_path / name / "rose" / "1.png")
    with pytest.raises(DataError, match=r"parts \(test, train\), and beside them .extra.*move it elsewhere"):
        open_reader(origin_of_path(tmp_path))


def test_a_class_may_be_called_like_a_part(tmp_path: Path) -> None:
    for name in ("bus", "car", "train"):
        picture(tmp_path / name / "1.png")
    assert open_reader(origin_of_path(tmp_path)).classes == ["bus", "car", "train"]


@pytest.mark.parametrize("function", ["scandir", "listdir"])
def test_a_folder_that_cannot_be_read_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, function: str) -> None:
    for name in ("rose", "tulip"):
        picture(tmp_path / name / "1.png")

    def refuse(path: Any) -> NoReturn:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(os, function, refuse)
    with pytest.raises(DataError, match=r"can't be read \(Permission denied\); make it readable"):
        open_reader(origin_of_path(tmp_path))


def coloured(path: Path, color: tuple[int, int, int] = (10, 20, 30), size: tuple[int, int] = (8, 6)) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, color).save(path)
    return path


def test_a_folder_per_class(tmp_path: Path) -> None:
    coloured(tmp_path / "tulip" / "b.png", (1, 2, 3))
    coloured(tmp_path / "rose" / "a.jpg")
    (tmp_path / "rose" / "notes.txt").write_text("no picture")
    coloured(tmp_path / "__MACOSX" / "rose" / "a.png")
    reader = open_reader(origin_of_path(tmp_path))
    assert reader.classes == ["rose", "tulip"] and reader.labels is not None and reader.labels.tolist() == [0, 1]
    assert reader.name_of(1) == "tulip/b.png" and reader.given_parts is None
    assert reader.read(1)["inputs"].shape == (3, 6, 8)
    assert reader.read(1)["inputs"][:, 0, 0].tolist() == [1, 2, 3]


def test_parts_that_folders_say(tmp_path: Path) -> None:
    for part in ("train", "val", "test"):
        coloured(tmp_path / part / "rose" / f"{part}.png")
    reader = open_reader(origin_of_path(tmp_path))
    assert reader.classes == ["rose"]
    assert {reader.name_of(i): int(p) for i, p in enumerate(reader.given_parts)} == {  # type: ignore[arg-type]
        "test/rose/test.png": 2,
        "train/rose/train.png": 0,
        "val/rose/val.png": 1,
    }


def test_folders_in_classes_and_around_them(tmp_path: Path) -> None:
    for name in ("rose/red", "rose/white", "tulip/red"):
        coloured(tmp_path / "archive" / "flowers" / name / "1.png")
    reader = open_reader(origin_of_path(tmp_path))
    assert reader.classes == ["rose", "tulip"] and reader.labels is not None and reader.labels.tolist() == [0, 0, 1]


def test_only_some_folders_are_classes(tmp_path: Path) -> None:
    coloured(tmp_path / "Fish" / "Trout" / "Trout" / "1.png")
    coloured(tmp_path / "Fish" / "Trout" / "Trout GT" / "1.png")
    reader = open_reader(Origin(reader="pictures", path=str(tmp_path), class_folders="* GT"))
    assert reader.classes == ["Trout"] and [reader.name_of(0)] == ["Fish/Trout/Trout GT/1.png"] and len(reader) == 1


def test_pictures_are_brought_to_one_shape(tmp_path: Path) -> None:
    coloured(tmp_path / "a" / "1.png", size=(40, 30))
    coloured(tmp_path / "a" / "2.png", size=(9, 9))
    Image.new("P", (5, 5)).save(tmp_path / "a" / "3.png")
    Image.new("RGBA", (5, 5)).save(tmp_path / "a" / "4.png")
    origin = Origin(reader="pictures", path=str(tmp_path), picture=PictureShape(width=7, height=3, grey=True))
    reader = open_reader(origin)
    assert [reader.read(index)["inputs"].shape for index in range(4)] == [(1, 3, 7)] * 4
    with pytest.raises(DataError, match=r"several sizes .*--resize"):
        open_reader(origin_of_path(tmp_path))


def test_bad_pictures_are_told_one_by_one(tmp_path: Path) -> None:
    whole = coloured(tmp_path / "a" / "1.png", size=(64, 64))
    (tmp_path / "a" / "2.png").write_bytes(whole.read_bytes()[:60])
    (tmp_path / "a" / "3.jpg").write_bytes(b"no picture at all")
    (tmp_path / "a" / "4.png").touch()
    origin = Origin(reader="pictures", path=str(tmp_path), picture=PictureShape(width=64, height=64))
    reader = open_reader(origin)
    outcomes = list(reader.samples(range(4)))
    assert [isinstance(each, BadSample) for each in outcomes] == [False, True, True, True]
    assert "can't be read" in str(outcomes[2])


def test_a_picture_that_would_fill_the_memory_is_bad(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    coloured(tmp_path / "a" / "1.png", size=(64, 64))
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1000)
    reader = open_reader(Origin(reader="pictures", path=str(tmp_path), picture=PictureShape(width=4, height=4)))
    with pytest.raises(BadSample, match="exceeds limit"):
        reader.read(0)


def test_a_folder_without_pictures(tmp_path: Path) -> None:
    coloured(tmp_path / "lonely.png")
    with pytest.raises(DataError, match="folder per class"):
        open_reader(origin_of_path(tmp_path))


# --- what is in a picture -----------------------------------------------------------------------------------------


def reader_of(folder: Path, image: Image.Image, name: str, **settings: Any) -> Any:
    (folder / "a").mkdir()
    image.save(folder / "a" / name, **settings)
    return open_reader(Origin(reader="pictures", path=str(folder), picture=PictureShape(grey=True)))


def test_pictures_of_16_bits_are_scaled(tmp_path: Path) -> None:
    image = Image.fromarray(np.array([[0, 257, 32896, 65535]], dtype=np.uint16))
    assert reader_of(tmp_path, image, "1.png").read(0)["inputs"].tolist() == [[[0, 1, 128, 255]]]


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (np.array([[0, 1000]], dtype=np.int32), r"\(mode I\) are from 0 to 1000.*save it with 8 or 16 bits"),
        (np.array([[-1, 5]], dtype=np.int32), r"\(mode I\) are from -1 to 5"),
        (np.array([[0.25, 1.0]], dtype=np.float32), r"\(mode F\) are from 0.25 to 1"),
        (np.array([[np.nan, 1.0]], dtype=np.float32), r"\(mode F\)"),
    ],
)
def test_values_that_8_bits_cannot_hold_are_refused(tmp_path: Path, values: np.ndarray, words: str) -> None:
    reader = reader_of(tmp_path, Image.fromarray(values), "1.tif")
    with pytest.raises(BadSample, match=words):
        reader.read(0)


def test_long_numbers_that_8_bits_can_hold_are_fine(tmp_path: Path) -> None:
    reader = reader_of(tmp_path, Image.fromarray(np.array([[0, 7, 255]], dtype=np.float32)), "1.tif")
    assert reader.read(0)["inputs"].tolist() == [[[0, 7, 255]]]


def turned() -> dict[str, Any]:
    """The camera was held upright: what is left in the file is above."""
    notes = Image.Exif()
    notes[0x0112] = 6
    return {"exif": notes}


def test_pictures_of_a_turned_camera_are_upright(tmp_path: Path) -> None:
    image = Image.fromarray(np.array([[200, 100, 50]], dtype=np.uint8))
    reader = reader_of(tmp_path, image, "1.png", **turned())
    assert reader.read(0)["inputs"].tolist() == [[[200], [100], [50]]]


def test_another_size_is_not_squashed(tmp_path: Path) -> None:
    for number in range(40):
        picture(tmp_path / "a" / f"{number:02d}.png", size=(64, 100) if number == 7 else (64, 64))
    reader = open_reader(origin_of_path(tmp_path))
    assert reader.read(6)["inputs"].shape == (3, 64, 64)
    with pytest.raises(BadSample, match="it is 64x100 instead of 64x64; give --resize 64x64"):
        reader.read(7)


@pytest.mark.filterwarnings("ignore:Corrupt EXIF data")
def test_damaged_notes_do_not_cost_a_picture(tmp_path: Path) -> None:
    notes = b"Exif\0\0MM\0*\0\0\0\x08\x00\x05\x01\x12"  # five of them are promised
    reader = reader_of(tmp_path, Image.new("L", (3, 2), 70), "1.jpg", exif=notes)
    assert reader.read(0)["inputs"].tolist() == [[[70] * 3] * 2]


@pytest.mark.filterwarnings("ignore:Image size")
def test_a_picture_with_suspiciously_many_pixels_is_bad(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between once and twice the limit Pillow only warns."""
    picture(tmp_path / "a" / "1.png", size=(40, 40))
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1000)
    reader = open_reader(Origin(reader="pictures", path=str(tmp_path), picture=PictureShape(width=4, height=4)))
    with pytest.raises(BadSample, match="it has 1,600 pixels, suspiciously many"):
        reader.read(0)
