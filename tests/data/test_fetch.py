"""Data sets fetched from a real server and from folders, and verified afterwards."""

from __future__ import annotations

import dataclasses
import gzip
import hashlib
import io
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from file_server import Behaviour, Server, serving

from minga.data.fetching import fetch as fetch_module
from minga.data.fetching.download import Patience
from minga.data.fetching.fetch import fetch
from minga.data.fetching.verify import is_here, verify
from minga.data.sources import KnownArchive, KnownDataset, KnownFile, known_dataset, known_datasets
from minga.errors import ConfigError, DataError

PATIENCE = Patience(attempts=2, first_pause_seconds=0.01)
CONTENT = {"pictures": b"p" * 5000, "labels": b"l" * 70}


@pytest.fixture
def server() -> Iterator[Server]:
    with serving(Behaviour()) as running:
        yield running


def plain_set(server: Server | None = None) -> KnownDataset:
    """Two files, published as .gz where there is a server."""
    files = tuple(
        KnownFile(
            name=name,
            bytes=len(content),
            sha256=hashlib.sha256(content).hexdigest(),
            url=server.url(f"{name}.gz") if server else None,
        )
        for name, content in CONTENT.items()
    )
    if server:
        server.behaviour.files |= {f"{name}.gz": gzip.compress(content) for name, content in CONTENT.items()}
    return KnownDataset(
        name="flowers", title="", reader="idx", homepage="http://flowers", licence="", citation="", folder="f",
        files=files,
    )  # fmt: skip


def archived_set(server: Server) -> KnownDataset:
    """The same in a tar file whose md5 is known."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as file:
        for name, content in CONTENT.items():
            info = tarfile.TarInfo(f"inner/{name}")
            info.size = len(content)
            file.addfile(info, io.BytesIO(content))
    server.behaviour.files["flowers.tar.gz"] = packed.getvalue()
    archive = KnownArchive(
        name="flowers.tar.gz", url=server.url("flowers.tar.gz"), md5=hashlib.md5(packed.getvalue()).hexdigest()
    )
    plain = plain_set()
    files = tuple(dataclasses.replace(file, archive=archive.name) for file in plain.files)
    return dataclasses.replace(plain, files=files, archives=(archive,))


def pictures_set(server: Server) -> KnownDataset:
    """An archive of which nobody knows a checksum, unpacked as a whole."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as file:
        for name in ("rose/1.png", "rose/2.png", "tulip/1.png"):
            file.writestr(name, name.encode() * 10)
    server.behaviour.files["pictures.zip"] = packed.getvalue()
    archive = KnownArchive(name="pictures.zip", url=server.url("pictures.zip"), into="pictures")
    return dataclasses.replace(plain_set(), files=(), archives=(archive,), reader="pictures")


def states(dataset: KnownDataset, data: Path) -> dict[str, str]:
    return {finding.name: finding.state for finding in verify(dataset, data)}


# --- from the network ----------------------------------------------------------------------------------------------


def test_files_are_downloaded_once(server: Server, tmp_path: Path) -> None:
    dataset = plain_set(server)
    assert not is_here(dataset, tmp_path)
    assert [each.state for each in fetch(dataset, tmp_path, patience=PATIENCE)] == ["fetched", "fetched"]
    assert is_here(dataset, tmp_path)
    assert states(dataset, tmp_path) == {"pictures": "whole", "labels": "whole"}
    asked = len(server.behaviour.asked)
    assert [each.state for each in fetch(dataset, tmp_path, patience=PATIENCE)] == ["here", "here"]
    assert len(server.behaviour.asked) == asked


def test_a_damaged_file_is_found_and_fetched_again(server: Server, tmp_path: Path) -> None:
    dataset = plain_set(server)
    fetch(dataset, tmp_path)
    (tmp_path / "f" / "labels.gz").write_bytes(gzip.compress(b"m" * 70))
    (tmp_path / "f" / "pictures.gz").write_bytes(b"no gzip at all")
    assert states(dataset, tmp_path) == {"pictures": "damaged", "labels": "damaged"}
    fetch(dataset, tmp_path)
    assert states(dataset, tmp_path) == {"pictures": "whole", "labels": "whole"}


@pytest.mark.parametrize("name", ["labels", "labels.gz"])
def test_a_damaged_file_does_not_stand_before_a_whole_one(server: Server, tmp_path: Path, name: str) -> None:
    dataset = plain_set(server)
    (tmp_path / "f").mkdir()
    (tmp_path / "f" / name).write_bytes(b"damaged")
    fetch(dataset, tmp_path)
    assert states(dataset, tmp_path) == {"pictures": "whole", "labels": "whole"}
    assert not (tmp_path / "f" / "labels").exists()


def test_an_archive_gives_its_members_and_goes(server: Server, tmp_path: Path) -> None:
    dataset = archived_set(server)
    fetch(dataset, tmp_path)
    assert states(dataset, tmp_path) == {"pictures": "whole", "labels": "whole"}
    assert sorted(path.name for path in (tmp_path / "f").iterdir()) == ["fetched.json", "labels", "pictures"]


def test_an_archive_with_another_checksum_is_refused(server: Server, tmp_path: Path) -> None:
    dataset = archived_set(server)
    server.behaviour.files["flowers.tar.gz"] += b" "
    with pytest.raises(DataError, match="its md5 is"):
        fetch(dataset, tmp_path)


def test_unknown_checksums_are_written_down_and_checked_from_then_on(server: Server, tmp_path: Path) -> None:
    dataset = pictures_set(server)
    fetch(dataset, tmp_path)
    assert states(dataset, tmp_path) == {"pictures (3 files)": "whole"}
    assert [each.state for each in fetch(dataset, tmp_path)] == ["here"]
    picture = tmp_path / "f" / "pictures" / "rose" / "1.png"
    picture.write_bytes(picture.read_bytes().replace(b"r", b"R"))
    (tmp_path / "f" / "pictures" / "tulip" / "1.png").unlink()
    assert states(dataset, tmp_path) == {"pictures/rose/1.png": "damaged", "pictures/tulip/1.png": "missing"}
    assert [each.state for each in fetch(dataset, tmp_path)] == ["fetched"]
    assert states(dataset, tmp_path) == {"pictures (3 files)": "whole"}


def test_an_archive_stays_until_its_checksums_are_written_down(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = pictures_set(server)
    with monkeypatch.context() as broken:
        broken.setattr(fetch_module, "record", lambda *_, **__: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            fetch(dataset, tmp_path)
    asked = len(server.behaviour.asked)
    assert [each.state for each in fetch(dataset, tmp_path)] == ["fetched"]
    assert len(server.behaviour.asked) == asked and not (tmp_path / "f" / "pictures.zip").exists()
    assert states(dataset, tmp_path) == {"pictures (3 files)": "whole"}


def test_what_is_not_published_must_be_brought(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"pictures is not published; bring it with --from DIR"):
        fetch(plain_set(), tmp_path)


def test_what_is_optional_is_left_out_unless_asked_for(server: Server, tmp_path: Path) -> None:
    dataset = plain_set(server)
    optional = dataclasses.replace(dataset.files[1], optional=True)
    dataset = dataclasses.replace(dataset, files=(dataset.files[0], optional))
    assert [each.state for each in fetch(dataset, tmp_path)] == ["fetched", "left out"]
    assert is_here(dataset, tmp_path) and states(dataset, tmp_path)["labels"] == "absent"
    assert [each.state for each in fetch(dataset, tmp_path, everything=True)] == ["here", "fetched"]


# --- from a folder -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("place", ["", "f", "deep/inside"])
def test_files_are_found_however_they_lie(tmp_path: Path, packed: bool, place: str) -> None:
    folder = tmp_path / "stick" / place
    folder.mkdir(parents=True)
    for name, content in CONTENT.items():
        path = folder / (f"{name}.gz" if packed else name)
        path.write_bytes(gzip.compress(content) if packed else content)
    fetch(plain_set(), tmp_path / "data", source=tmp_path / "stick")
    assert states(plain_set(), tmp_path / "data") == {"pictures": "whole", "labels": "whole"}
    assert not (tmp_path / "data" / "f" / "labels").is_symlink()


def test_links_instead_of_copies(tmp_path: Path) -> None:
    for name, content in CONTENT.items():
        (tmp_path / name).write_bytes(content)
    fetch(plain_set(), tmp_path / "data", source=tmp_path, link=True)
    assert (tmp_path / "data" / "f" / "labels").resolve() == tmp_path / "labels"
    assert states(plain_set(), tmp_path / "data") == {"pictures": "whole", "labels": "whole"}


def test_a_wrong_file_in_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "pictures").write_bytes(b"q" * 5000)
    with pytest.raises(DataError, match="is not the pictures of flowers: its sha256 is"):
        fetch(plain_set(), tmp_path / "data", source=tmp_path)
    assert not (tmp_path / "data" / "f" / "pictures").exists()


def test_an_archive_in_the_folder(server: Server, tmp_path: Path) -> None:
    dataset = archived_set(server)
    (tmp_path / "flowers.tar.gz").write_bytes(server.behaviour.files["flowers.tar.gz"])
    fetch(dataset, tmp_path / "data", source=tmp_path)
    assert states(dataset, tmp_path / "data") == {"pictures": "whole", "labels": "whole"}
    assert (tmp_path / "flowers.tar.gz").is_file() and server.behaviour.asked == []


@pytest.mark.parametrize("link", [True, False])
def test_a_folder_of_pictures(server: Server, tmp_path: Path, link: bool) -> None:
    for name in ("rose", "tulip"):
        (tmp_path / "mine" / name).mkdir(parents=True)
        (tmp_path / "mine" / name / "1.png").write_bytes(b"1")
    dataset = pictures_set(server)
    fetch(dataset, tmp_path / "data", source=tmp_path / "mine", link=link)
    assert states(dataset, tmp_path / "data") == {"pictures (2 files)": "whole"}
    assert (tmp_path / "data" / "f" / "pictures").is_symlink() == link


def test_what_was_brought_before_is_forgotten(server: Server, tmp_path: Path) -> None:
    dataset = pictures_set(server)
    fetch(dataset, tmp_path / "data")
    for name in ("rose", "tulip"):
        (tmp_path / "mine" / name).mkdir(parents=True)
        (tmp_path / "mine" / name / "9.png").write_bytes(b"9")
    (tmp_path / "data" / "f" / "pictures" / "rose" / "1.png").unlink()
    fetch(dataset, tmp_path / "data", source=tmp_path / "mine")
    assert states(dataset, tmp_path / "data") == {"pictures (2 files)": "whole"}


def test_not_any_folder_is_the_data_set(server: Server, tmp_path: Path) -> None:
    dataset = dataclasses.replace(pictures_set(server), class_folders="* GT")
    for name in ("holiday/sea", "holiday/land"):
        (tmp_path / "stick" / name).mkdir(parents=True)
        (tmp_path / "stick" / name / "1.png").write_bytes(b"1")
    (tmp_path / "stick" / "archive.zip").write_bytes(server.behaviour.files["pictures.zip"])
    with pytest.raises(DataError, match=r"no pictures in .* named .\* GT.*its archives with --from \(.*archive\.zip"):
        fetch(dataset, tmp_path / "data", source=tmp_path / "stick")
    with pytest.raises(DataError, match="named Negative, Positive"):
        fetch(known_dataset("concrete-cracks"), tmp_path / "data", source=tmp_path / "stick")
    assert not (tmp_path / "data").exists()


def test_pictures_that_others_have_put_there_stay(server: Server, tmp_path: Path) -> None:
    dataset = pictures_set(server)
    for place in ("data/f/pictures", "stick"):
        for name in ("rose", "tulip"):
            (tmp_path / place / name).mkdir(parents=True)
            (tmp_path / place / name / "9.png").write_bytes(place.encode())
    own = tmp_path / "data" / "f" / "pictures" / "rose" / "9.png"
    assert [each.state for each in fetch(dataset, tmp_path / "data")] == ["here"] and server.behaviour.asked == []
    archive = tmp_path / "pictures.zip"
    archive.write_bytes(server.behaviour.files["pictures.zip"])
    for source in (tmp_path / "stick", archive):
        with pytest.raises(DataError, match=r"replaced, and with it .*9\.png, which minga has not brought; move it"):
            fetch(dataset, tmp_path / "data", source=source)
    assert own.read_bytes() == b"data/f/pictures"


def test_a_picture_beside_those_that_are_brought_again_stays(server: Server, tmp_path: Path) -> None:
    dataset = pictures_set(server)
    fetch(dataset, tmp_path)
    own = tmp_path / "f" / "pictures" / "rose" / "mine.png"
    own.write_bytes(b"mine")
    assert [each.state for each in fetch(dataset, tmp_path)] == ["here"]
    (tmp_path / "f" / "pictures" / "tulip" / "1.png").unlink()
    with pytest.raises(DataError, match=r"with it .*mine\.png, which minga has not brought"):
        fetch(dataset, tmp_path)
    own.rename(tmp_path / "mine.png")
    assert [each.state for each in fetch(dataset, tmp_path)] == ["fetched"]


@pytest.mark.parametrize("link", [True, False])
def test_a_folder_is_not_brought_into_itself(server: Server, tmp_path: Path, link: bool) -> None:
    dataset = pictures_set(server)
    own = tmp_path / "f" / "pictures"
    for name in ("rose", "tulip"):
        (own / name).mkdir(parents=True)
        (own / name / "1.png").write_bytes(b"1")
    for source, data in ((tmp_path, tmp_path), (own, own), (own, tmp_path)):
        with pytest.raises(DataError, match="one is inside of the other; give the folder"):
            fetch(dataset, data, source=source, link=link)
    assert len(list(tmp_path.rglob("*.png"))) == 2


@pytest.mark.parametrize("kind", [plain_set, archived_set, pictures_set])
def test_a_data_directory_that_is_a_file_is_told(
    server: Server, tmp_path: Path, kind: Callable[[Server], KnownDataset]
) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DataError, match=r"can.t be brought to .*file.*--data DIR"):
        fetch(kind(server), tmp_path / "file")
    for name, content in CONTENT.items():
        (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=r"can.t be brought to .*file.*--data DIR"):
        fetch(plain_set(), tmp_path / "file", source=tmp_path)


def test_the_archive_itself(server: Server, tmp_path: Path) -> None:
    dataset = pictures_set(server)
    (tmp_path / "download(1).zip").write_bytes(server.behaviour.files["pictures.zip"])
    fetch(dataset, tmp_path / "data", source=tmp_path / "download(1).zip")
    assert states(dataset, tmp_path / "data") == {"pictures (3 files)": "whole"}


def test_what_is_missing_in_the_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "pictures").write_bytes(CONTENT["pictures"])
    with pytest.raises(DataError, match="has no labels, which flowers needs"):
        fetch(plain_set(), tmp_path / "data", source=tmp_path)
    with pytest.raises(DataError, match="no such folder or file"):
        fetch(plain_set(), tmp_path / "data", source=tmp_path / "nowhere")


# --- the sets that are known ---------------------------------------------------------------------------------------


def test_the_sets_of_the_product_are_there() -> None:
    names = {"mnist", "fashion-mnist", "cifar10", "flickr8k", "fish", "concrete-cracks", "tiny-shakespeare"}
    assert names <= set(known_datasets())


@pytest.mark.parametrize("name", known_datasets())
def test_each_says_whose_it_is_and_what_is_known_of_its_files(name: str) -> None:
    dataset = known_datasets()[name]
    assert dataset.licence and dataset.citation and dataset.homepage.startswith("http") and dataset.title
    assert dataset.files or dataset.archives
    for file in dataset.files:
        assert file.bytes and (len(file.sha256 or "") == 64 or len(file.md5 or "") == 32), file.name
        assert file.url or file.archive or file.optional, file.name
    for entry in (*dataset.files, *dataset.archives):
        assert entry.url is None or entry.url.startswith(("https://", "http://")), entry.name
    for archive in dataset.archives:
        assert archive.sha256 or archive.md5 or archive.into or dataset.files, archive.name


def test_an_unknown_name_is_told_with_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=r"unknown data set 'mnits'.*Did you mean 'mnist'"):
        known_dataset("mnits")
