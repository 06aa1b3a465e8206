"""Downloads over real connections that break off, repeat themselves, lie, or have no room to go to."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from file_server import Behaviour, Server, serving

from minga.data.fetching.download import Patience, download
from minga.data.progress import ProgressDisplay
from minga.errors import DataError, DownloadFailed

CONTENT = random.Random(0).randbytes(300_000)
PATIENCE = Patience(attempts=3, first_pause_seconds=0.01, timeout_seconds=5)


@pytest.fixture
def server() -> Iterator[Server]:
    with serving(Behaviour(files={"file": CONTENT})) as running:
        yield running


def whole(path: Path) -> str | None:
    return None if hashlib.sha256(path.read_bytes()).digest() == hashlib.sha256(CONTENT).digest() else "it is wrong"


def bring(server: Server, target: Path, **settings: object) -> None:
    download(server.url("file"), target, check=whole, patience=PATIENCE, **settings)  # type: ignore[arg-type]


def leftovers(target: Path) -> list[str]:
    return sorted(path.name for path in target.parent.iterdir() if path != target)


def test_a_file_comes_whole_and_leaves_nothing_else(server: Server, tmp_path: Path) -> None:
    bring(server, tmp_path / "new folder" / "file")
    assert (tmp_path / "new folder" / "file").read_bytes() == CONTENT
    assert leftovers(tmp_path / "new folder" / "file") == []


def test_a_connection_that_breaks_off_is_gone_on_with_where_it_was(server: Server, tmp_path: Path) -> None:
    server.behaviour.breaks_after = [100_000, 50_000]
    bring(server, tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == CONTENT
    assert server.behaviour.asked == [None, "bytes=100000-", "bytes=150000-"]


def test_another_call_goes_on_with_what_one_left(server: Server, tmp_path: Path) -> None:
    server.behaviour.breaks_after = [100_000]
    server.behaviour.errors = []
    with pytest.raises(DownloadFailed, match=r"3 times in a row.*run the same command again"):
        server.behaviour.breaks_after = [100_000, 0, 0, 0]
        bring(server, tmp_path / "file")
    assert not (tmp_path / "file").exists()
    bring(server, tmp_path / "file")
    assert server.behaviour.asked[-1] == "bytes=100000-"
    assert (tmp_path / "file").read_bytes() == CONTENT and leftovers(tmp_path / "file") == []


def test_progress_without_end_counts_as_progress(server: Server, tmp_path: Path) -> None:
    """More breaks than attempts, but each time something comes."""
    server.behaviour.breaks_after = [20_000] * 10
    bring(server, tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == CONTENT


def test_a_server_that_knows_no_ranges_begins_anew(server: Server, tmp_path: Path) -> None:
    server.behaviour.knows_ranges = False
    server.behaviour.breaks_after = [100_000]
    bring(server, tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == CONTENT


def test_another_version_is_not_mixed_with_the_first(server: Server, tmp_path: Path) -> None:
    server.behaviour.files["file"] = b"x" * 300_000
    server.behaviour.breaks_after = [100_000, 0, 0, 0]
    with pytest.raises(DownloadFailed):
        bring(server, tmp_path / "file")
    server.behaviour.files["file"], server.behaviour.tag = CONTENT, '"two"'
    download(server.url("file"), tmp_path / "file", check=lambda path: None, patience=PATIENCE)
    assert (tmp_path / "file").read_bytes() == CONTENT


def test_a_wrong_beginning_is_found_out_and_fetched_again(server: Server, tmp_path: Path) -> None:
    (tmp_path / "file.part").write_bytes(b"y" * 1000)
    bring(server, tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == CONTENT


def test_a_part_that_is_complete_needs_no_more_bytes(server: Server, tmp_path: Path) -> None:
    (tmp_path / "file.part").write_bytes(CONTENT)
    bring(server, tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == CONTENT


def test_a_part_that_is_too_long_is_dropped(server: Server, tmp_path: Path) -> None:
    (tmp_path / "file.part").write_bytes(CONTENT + b"more")
    bring(server, tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == CONTENT


def test_wrong_content_never_gets_the_name(server: Server, tmp_path: Path) -> None:
    server.behaviour.files["file"] = b"something else"
    (tmp_path / "file").write_bytes(b"what was here before")
    with pytest.raises(DataError, match=r"not what it should be: it is wrong.*--from DIR"):
        bring(server, tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == b"what was here before"
    assert leftovers(tmp_path / "file") == []


def test_a_file_that_is_gone_is_said_at_once(server: Server, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"404 Not Found.*browser.*--from DIR"):
        download(server.url("absent"), tmp_path / "file", check=whole, patience=Patience(first_pause_seconds=60))
    assert leftovers(tmp_path / "file") == []


def test_trouble_on_the_servers_side_passes(server: Server, tmp_path: Path) -> None:
    server.behaviour.errors = [503, 429]
    bring(server, tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == CONTENT


def test_nobody_there(tmp_path: Path) -> None:
    with serving(Behaviour()) as gone:
        pass
    with pytest.raises(DownloadFailed, match=r"refused.*--from DIR"):
        bring(gone, tmp_path / "file")


def test_too_little_disk_is_said_before_anything_is_written(server: Server, small_disk: Path) -> None:
    server.behaviour.files["file"] = bytes(2 << 20)
    with pytest.raises(DataError, match=r"needs 2,097,152 more bytes.*--data DIR"):
        bring(server, small_disk / "file")
    assert leftovers(small_disk / "file") == []


def test_two_at_a_time_are_kept_apart(server: Server, tmp_path: Path) -> None:
    with (tmp_path / "file.part").open("wb") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(DataError, match="another process is downloading file"):
            bring(server, tmp_path / "file")


def test_only_the_web_is_read(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="only http and https"):
        download("file:///etc/passwd", tmp_path / "file", check=whole)


class Counting(ProgressDisplay):
    def __init__(self) -> None:
        self.totals: list[int | None] = []
        self.done = 0

    @contextlib.contextmanager
    def task(self, name: str, *, total: int | None, unit: str) -> Iterator[Callable[[int], None]]:
        self.totals.append(total)

        def advance(done: int) -> None:
            self.done += done

        yield advance


@pytest.mark.parametrize("knows_ranges", [True, False])
def test_progress_adds_up_to_the_size(server: Server, tmp_path: Path, knows_ranges: bool) -> None:
    server.behaviour.knows_ranges = knows_ranges
    server.behaviour.breaks_after = [100_000]
    progress = Counting()
    bring(server, tmp_path / "file", progress=progress)
    assert (progress.totals, progress.done) == ([300_000], 300_000)
