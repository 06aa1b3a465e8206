"""Pictures in folders: classes by name, read when asked for, divided fairly."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from minga.data.picture_folders import PictureFolder, split_by_class
from minga.errors import DataError


def save(path: Path, grey: int, size: tuple[int, int] = (20, 10)) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("L", size, grey).save(path)


def test_folders_are_classes_in_the_order_of_the_alphabet(tmp_path: Path) -> None:
    save(tmp_path / "trout" / "1.png", 255)
    save(tmp_path / "cod" / "deeper" / "2.PNG", 51)
    (tmp_path / "cod" / "notes.txt").write_text("no picture")
    (tmp_path / "empty").mkdir()
    folder = PictureFolder.of(tmp_path, (8, 6))
    assert folder.classes == ["cod", "trout"] and len(folder) == 2
    picture, number = folder[0]
    assert number == 0 and picture.shape == (1, 6, 8) and picture.dtype == torch.float16
    torch.testing.assert_close(picture.float(), torch.full((1, 6, 8), 0.2), rtol=1e-3, atol=1e-3)
    assert folder[1][0].min() == 1 and folder[1][1] == 1


def test_colours_become_grey(tmp_path: Path) -> None:
    save(tmp_path / "b" / "1.png", 0)
    (tmp_path / "a").mkdir()
    Image.fromarray(np.full((4, 4, 3), [0, 255, 0], dtype=np.uint8)).save(tmp_path / "a" / "1.png")
    assert float(PictureFolder.of(tmp_path, (4, 4))[0][0].mean()) == pytest.approx(0.587, abs=0.003)


def test_pictures_are_upright_and_of_more_than_8_bits(tmp_path: Path) -> None:
    save(tmp_path / "b" / "1.png", 0)
    (tmp_path / "a").mkdir()
    notes = Image.Exif()
    notes[0x0112] = 6  # the camera was turned: what is left in the file is above
    image = Image.fromarray(np.array([[65535, 257 * 51]], dtype=np.uint16))
    image.save(tmp_path / "a" / "1.png", exif=notes)
    assert PictureFolder.of(tmp_path, (1, 2))[0][0].flatten().tolist() == pytest.approx([1, 0.2], abs=1e-3)
    Image.fromarray(np.array([[0.5, 1000]], dtype=np.float32)).save(tmp_path / "a" / "0.tif")
    with pytest.raises(DataError, match=r"0\.tif can.t be read as a picture \(its values \(mode F\)"):
        PictureFolder.of(tmp_path, (1, 2))[0]


def test_nothing_is_read_before_it_is_asked_for(tmp_path: Path) -> None:
    save(tmp_path / "b" / "1.png", 0)
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "broken.png").write_bytes(b"no picture")
    folder = PictureFolder.of(tmp_path, (4, 4))
    with pytest.raises(DataError, match=r"broken\.png can't be read as a picture"):
        folder[0]


def test_one_class_is_too_few(tmp_path: Path) -> None:
    save(tmp_path / "b" / "1.png", 0)
    with pytest.raises(DataError, match="of 1 classes; there should be a folder for each of two or more"):
        PictureFolder.of(tmp_path, (4, 4))


def test_no_folder_is_told(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"there is no folder .*nowhere"):
        PictureFolder.of(tmp_path / "nowhere", (4, 4))


def test_an_archive_with_masks_beside_photographs(tmp_path: Path) -> None:
    """As the fish are published: around the classes two folders, in each class one of photographs and one of masks."""
    for name, grey in [("Red Mullet", 10), ("Black Sea Sprat", 20)]:
        for kind, more in [("", 100), (" GT", 0)]:
            save(tmp_path / "Fish_Dataset" / "Fish_Dataset" / name / f"{name}{kind}" / "1.png", grey + more)
    save(tmp_path / "__MACOSX" / "Fish_Dataset" / "._1.png", 0)
    folder = PictureFolder.of(tmp_path, (4, 4), named="* GT")
    assert folder.classes == ["Black Sea Sprat", "Red Mullet"] and len(folder) == 2
    assert [round(255 * float(folder[at][0].mean())) for at in (0, 1)] == [20, 10]
    everything = PictureFolder.of(tmp_path, (4, 4))
    assert everything.classes == folder.classes and len(everything) == 4


def test_parts_around_the_classes_are_no_classes(tmp_path: Path) -> None:
    for part, number in [("train", 0), ("val", 1), ("Test", 2)]:
        for name in ("cod", "trout"):
            save(tmp_path / part / name / f"{part}.png", 10 * number)
    folder = PictureFolder.of(tmp_path, (4, 4))
    assert folder.classes == ["cod", "trout"] and len(folder) == 6
    assert folder.given_parts is not None
    assert [path.parts[-3:-1] for path in folder.files] == [
        (["train", "val", "Test"][part], folder.classes[number])
        for part, number in zip(folder.given_parts, folder.numbers, strict=True)
    ]


def test_every_class_is_divided_in_the_same_proportions() -> None:
    numbers = [0] * 1000 + [1] * 100 + [2] * 10
    train, validation, test = split_by_class(numbers, (0.85, 0.02, 0.13), seed=1)
    assert sorted(train + validation + test) == list(range(1110))
    counted = [Counter(numbers[place] for place in part) for part in (train, validation, test)]
    assert [dict(each) for each in counted] == [{0: 850, 1: 85, 2: 8}, {0: 20, 1: 2}, {0: 130, 1: 13, 2: 2}]


def test_the_seed_decides_who_is_where() -> None:
    numbers = [0, 1] * 50
    first = split_by_class(numbers, (0.5, 0.5), seed=1)
    assert first == split_by_class(numbers, (0.5, 0.5), seed=1) != split_by_class(numbers, (0.5, 0.5), seed=2)
