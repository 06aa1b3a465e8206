"""Pictures in folders as a data set of torch: classes by name, read when asked for."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from minga.data.formats.base import PictureShape
from minga.data.formats.dataset import ReaderDataset
from minga.data.formats.pictures import PictureReader
from minga.errors import DataError


def save(path: Path, grey: int, size: tuple[int, int] = (20, 10)) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("L", size, grey).save(path)


def folder_of(place: Path, size: tuple[int, int], class_folders: str = "*") -> ReaderDataset:
    shape = PictureShape(width=size[0], height=size[1], grey=True)
    return ReaderDataset(PictureReader(place, shape, class_folders), dtype="float16")


def test_folders_are_classes_in_the_order_of_the_alphabet(tmp_path: Path) -> None:
    save(tmp_path / "trout" / "1.png", 255)
    save(tmp_path / "cod" / "deeper" / "2.PNG", 51)
    (tmp_path / "cod" / "notes.txt").write_text("no picture")
    (tmp_path / "empty").mkdir()
    folder = folder_of(tmp_path, (8, 6))
    assert folder.classes == ["cod", "trout"] and len(folder) == 2
    picture, number = folder[0]
    assert number == 0 and picture.shape == (1, 6, 8) and picture.dtype == torch.float16
    torch.testing.assert_close(picture.float(), torch.full((1, 6, 8), 0.2), rtol=1e-3, atol=1e-3)
    assert folder[1][0].min() == 1 and folder[1][1] == 1


def test_colours_become_grey(tmp_path: Path) -> None:
    save(tmp_path / "b" / "1.png", 0)
    (tmp_path / "a").mkdir()
    Image.fromarray(np.full((4, 4, 3), [0, 255, 0], dtype=np.uint8)).save(tmp_path / "a" / "1.png")
    assert float(folder_of(tmp_path, (4, 4))[0][0].mean()) == pytest.approx(0.587, abs=0.003)


def test_pictures_are_upright_and_of_more_than_8_bits(tmp_path: Path) -> None:
    save(tmp_path / "b" / "1.png", 0)
    (tmp_path / "a").mkdir()
    notes = Image.Exif()
    notes[0x0112] = 6  # the camera was turned: what is left in the file is above
    image = Image.fromarray(np.array([[65535, 257 * 51]], dtype=np.uint16))
    image.save(tmp_path / "a" / "1.png", exif=notes)
    assert folder_of(tmp_path, (1, 2))[0][0].flatten().tolist() == pytest.approx([1, 0.2], abs=1e-3)
    Image.fromarray(np.array([[0.5, 1000]], dtype=np.float32)).save(tmp_path / "a" / "0.tif")
    with pytest.raises(DataError, match=r"0\.tif: its values \(mode F\).*; remove it"):
        folder_of(tmp_path, (1, 2))[0]


def test_nothing_is_read_before_it_is_asked_for(tmp_path: Path) -> None:
    save(tmp_path / "b" / "1.png", 0)
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "broken.png").write_bytes(b"no picture")
    folder = folder_of(tmp_path, (4, 4))
    with pytest.raises(DataError, match=r"broken\.png: it can't be read.* minga data prepare"):
        folder[0]


def test_no_folder_is_told(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"there is no folder .*nowhere"):
        folder_of(tmp_path / "nowhere", (4, 4))


def test_an_archive_with_masks_beside_photographs(tmp_path: Path) -> None:
    """As the fish are published: around the classes two folders, in each class one of photographs and one of masks."""
    for name, grey in [("Red Mullet", 10), ("Black Sea Sprat", 20)]:
        for kind, more in [("", 100), (" GT", 0)]:
            save(tmp_path / "Fish_Dataset" / "Fish_Dataset" / name / f"{name}{kind}" / "1.png", grey + more)
    save(tmp_path / "__MACOSX" / "Fish_Dataset" / "._1.png", 0)
    folder = folder_of(tmp_path, (4, 4), "* GT")
    assert folder.classes == ["Black Sea Sprat", "Red Mullet"] and len(folder) == 2
    assert [round(255 * float(folder[at][0].mean())) for at in (0, 1)] == [20, 10]
    everything = folder_of(tmp_path, (4, 4))
    assert everything.classes == folder.classes and len(everything) == 4


def test_parts_around_the_classes_are_no_classes(tmp_path: Path) -> None:
    for part, number in [("train", 0), ("val", 1), ("Test", 2)]:
        for name in ("cod", "trout"):
            save(tmp_path / part / name / f"{part}.png", 10 * number)
    reader = PictureReader(tmp_path, PictureShape(width=4, height=4))
    assert reader.classes == ["cod", "trout"] and len(reader) == 6
    assert reader.part("validation").tolist() == [2, 5]
    test = ReaderDataset(reader, reader.part("test").tolist(), dtype="float16")
    assert test.names == ["Test/cod/Test.png", "Test/trout/Test.png"] and [number for _, number in test] == [0, 1]


def test_the_order_is_by_class_then_by_path(tmp_path: Path) -> None:
    for name in ("b/2", "a b/1", "a/x/1", "a/9", "B/1"):
        save(tmp_path / f"{name}.png", 0)
    found = folder_of(tmp_path, (4, 4))
    assert found.classes == ["B", "a", "a b", "b"]
    assert found.names == ["B/1.png", "a/9.png", "a/x/1.png", "a b/1.png", "b/2.png"]
