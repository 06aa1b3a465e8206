"""Archives that are fine, damaged, or meant to do harm."""

from __future__ import annotations

import io
import random
import stat
import tarfile
import zipfile
from pathlib import Path

import pytest

from minga.data.fetching.unpack import is_archive, take_members, unpack
from minga.errors import DataError


def tar_with(path: Path, *members: tuple[tarfile.TarInfo, bytes], mode: str = "w:gz") -> Path:
    with tarfile.open(path, mode) as file:  # type: ignore[call-overload]
        for info, content in members:
            info.size = len(content) if info.isreg() else 0
            file.addfile(info, io.BytesIO(content) if info.isreg() else None)
    return path


def plain(name: str) -> tarfile.TarInfo:
    return tarfile.TarInfo(name)


def special(name: str, kind: bytes, target: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


def zip_with(path: Path, members: dict[str, bytes], mode: int = 0) -> Path:
    with zipfile.ZipFile(path, "w") as file:
        for name, content in members.items():
            info = zipfile.ZipInfo(name)
            info.external_attr = mode << 16
            info.compress_type = zipfile.ZIP_DEFLATED
            file.writestr(info, content)
    return path


def tree(folder: Path) -> dict[str, bytes]:
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


@pytest.mark.parametrize("kind", ["tar", "zip"])
def test_all_of_an_archive(tmp_path: Path, kind: str) -> None:
    content = {"a/one.png": b"1", "a/b/two.png": b"22"}
    archive = (
        zip_with(tmp_path / "x", content)
        if kind == "zip"
        else tar_with(tmp_path / "x", *((plain(name), each) for name, each in content.items()))
    )
    assert is_archive(archive)
    assert unpack(archive, tmp_path / "out") == 2
    assert tree(tmp_path / "out") == content


def test_what_was_there_before_is_replaced_as_a_whole(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "old").touch()
    unpack(zip_with(tmp_path / "x.zip", {"new": b"1"}), tmp_path / "out")
    assert tree(tmp_path / "out") == {"new": b"1"}


HARMFUL = {
    "up": plain("../evil"),
    "deep up": plain("a/../../evil"),
    "absolute": plain("/tmp/evil-minga-test"),
    "windows": plain("a\\..\\..\\evil"),
    "symlink": special("link", tarfile.SYMTYPE, "/etc"),
    "hard link": special("link", tarfile.LNKTYPE, "/etc/passwd"),
    "device": special("device", tarfile.CHRTYPE),
    "pipe": special("pipe", tarfile.FIFOTYPE),
}


@pytest.mark.parametrize("name", HARMFUL)
def test_a_harmful_tar_is_refused_and_leaves_nothing(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "inner"
    folder.mkdir()
    archive = tar_with(folder / "x.tar.gz", (plain("fine"), b"1"), (HARMFUL[name], b"2"))
    with pytest.raises(DataError, match="not unpacked"):
        unpack(archive, folder / "out")
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["x.tar.gz"]
    assert not (folder / "out").exists() and not Path("/tmp/evil-minga-test").exists()


@pytest.mark.parametrize("name", ["../evil", "/evil", "a/../../evil", "C:/evil"])
def test_a_harmful_zip_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(DataError, match="outside of its folder"):
        unpack(zip_with(tmp_path / "x.zip", {name: b"1"}), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_symlink_in_a_zip_is_refused(tmp_path: Path) -> None:
    archive = zip_with(tmp_path / "x.zip", {"link": b"/etc/passwd"}, mode=stat.S_IFLNK | 0o777)
    with pytest.raises(DataError, match="no plain file"):
        unpack(archive, tmp_path / "out")


def test_more_than_the_disk_can_hold_is_refused_before_it_is_full(small_disk: Path) -> None:
    archive = zip_with(small_disk / "x.zip", {"zeros": bytes(4 << 20)})
    with pytest.raises(DataError, match="4,194,304 more bytes"):
        unpack(archive, small_disk / "out")


def test_the_disk_that_files_go_to_counts(tmp_path: Path, small_disk: Path) -> None:
    archive = zip_with(tmp_path / "x.zip", {"zeros": bytes(4 << 20)})
    with pytest.raises(DataError, match=r"4,194,304 more bytes, and the disk of .* has"):
        unpack(archive, small_disk / "out")
    with pytest.raises(DataError, match="4,194,304 more bytes"):
        take_members(archive, {"zeros"}, small_disk / "some")


def test_what_cannot_be_written_is_told(tmp_path: Path) -> None:
    archive = zip_with(tmp_path / "x.zip", {"a": b"1"})
    (tmp_path / "file").touch()
    with pytest.raises(DataError, match=r"can.t be unpacked to .*file.*--data DIR"):
        unpack(archive, tmp_path / "file" / "out")
    with pytest.raises(DataError, match=r"can.t be unpacked to"):
        take_members(archive, {"a"}, tmp_path / "file" / "out")


def test_a_link_is_replaced_and_what_it_leads_to_stays(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "precious").touch()
    (tmp_path / "out").symlink_to(tmp_path / "mine")
    unpack(zip_with(tmp_path / "x.zip", {"new": b"1"}), tmp_path / "out")
    assert tree(tmp_path / "out") == {"new": b"1"} and (tmp_path / "mine" / "precious").exists()


@pytest.mark.parametrize("cut", [0.3, 0.95])
@pytest.mark.parametrize("kind", ["tar", "zip"])
def test_a_damaged_archive_is_told(tmp_path: Path, kind: str, cut: float) -> None:
    noise = random.Random(0).randbytes(20_000)
    archive = (
        zip_with(tmp_path / "x", {"a": noise})
        if kind == "zip"
        else tar_with(tmp_path / "x", (plain("a"), noise), mode="w:gz")
    )
    content = archive.read_bytes()
    archive.write_bytes(content[: int(cut * len(content))])
    with pytest.raises(DataError, match=r"damaged|no zip or tar"):
        unpack(archive, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_what_can_not_be_unpacked_here_is_said(tmp_path: Path) -> None:
    (tmp_path / "x.rar").write_bytes(b"Rar!\x1a\x07\x00" + bytes(50))
    with pytest.raises(DataError, match=r"a RAR file.*--from DIR"):
        unpack(tmp_path / "x.rar", tmp_path / "out")


def test_some_members_whatever_folder_they_are_in(tmp_path: Path) -> None:
    archive = zip_with(tmp_path / "x.zip", {"__MACOSX/a.txt": b"no", "deep/a.txt": b"yes", "b.txt": b"not asked for"})
    assert take_members(archive, {"a.txt", "c.txt"}, tmp_path / "out") == {"a.txt"}
    assert tree(tmp_path / "out") == {"a.txt": b"yes"}
