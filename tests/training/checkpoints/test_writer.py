"""Writing checkpoints beside training: what is kept, what is left when it fails or is killed."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from minga.errors import CheckpointError
from minga.training.checkpoints.files import FORMAT, Checkpoint, list_checkpoints, prune, remove_leftovers
from minga.training.checkpoints.parts import read_part
from minga.training.checkpoints.resume import find_last_good, set_later_aside
from minga.training.checkpoints.snapshot import Snapshot
from minga.training.checkpoints.writer import CheckpointWriter, Part, write_part


def state_of(step: int, *, rank: int = 0, ranks: int = 1, numbers: int = 1000) -> Snapshot:
    facts = {
        "format": FORMAT,
        "workload": "made",
        "strategy": "ring",
        "layout": "0",
        "step": step,
        "rank": rank,
        "ranks": ranks,
        "order": {"epoch": 1, "offset": 5, "samples": 10},
    }
    return Snapshot({"parameters": torch.full((numbers,), float(step))}, facts)


def part_of(step: int, *, value: float | None = None, **options: int) -> Part:
    state = state_of(step, **options)
    state.facts |= {} if value is None else {"metric": "accuracy", "value": value}
    return Part(f"step-{step:08d}", state)


def names(run: Path) -> list[int]:
    return [checkpoint.order[1] for checkpoint in list_checkpoints(run)]


def files_of(run: Path) -> list[str]:
    return sorted(str(path.relative_to(run)) for path in run.rglob("*") if path.is_file())


Failures = list[tuple[str, Exception]]


def writer_of(run: Path, failures: Failures, **options: object) -> CheckpointWriter:
    settings = {"keep": 2, "keep_best": True, **options}
    return CheckpointWriter(run, failed=lambda name, error: failures.append((name, error)), **settings)  # type: ignore[arg-type]


def test_what_is_written_can_be_read(tmp_path: Path) -> None:
    write_part(tmp_path, part_of(3))
    checkpoint = Checkpoint(tmp_path / "checkpoints" / "step-00000003")
    assert checkpoint.problem() is None
    assert torch.equal(read_part(checkpoint, 0).tensors["parameters"], torch.full((1000,), 3.0))
    assert files_of(tmp_path / "checkpoints") == ["step-00000003/rank-0.json", "step-00000003/rank-0.safetensors"]


def test_the_last_ones_and_the_best_stay(tmp_path: Path) -> None:
    failures: Failures = []
    writer = writer_of(tmp_path, failures)
    for step, value in enumerate([0.5, 0.9, None, 0.7, None, 0.8]):
        writer.submit(part_of(step, value=value))
        assert writer.wait(10)
    assert names(tmp_path) == [1, 4, 5]
    assert writer.close(10)
    assert failures == []


def test_nothing_is_removed_before_a_later_one_has_all_its_parts(tmp_path: Path) -> None:
    for step in (1, 2, 3):
        write_part(tmp_path, part_of(step, rank=0, ranks=2))
        prune(tmp_path, keep=1, keep_best=False)
    assert names(tmp_path) == [1, 2, 3]  # rank 1 has written nothing yet
    write_part(tmp_path, part_of(2, rank=1, ranks=2))
    prune(tmp_path, keep=1, keep_best=False)
    assert names(tmp_path) == [2, 3]


def test_a_newer_one_takes_the_place_of_one_that_waits(tmp_path: Path) -> None:
    gate, inside = threading.Event(), threading.Event()

    def hold(part: Part, seconds: float, nbytes: int) -> None:
        inside.set()
        assert gate.wait(10)

    failures: Failures = []
    writer = writer_of(tmp_path, failures, keep=9, written=hold)
    writer.submit(part_of(1))
    assert inside.wait(10)
    for step in (2, 3, 4):
        writer.submit(part_of(step))
    assert not writer.wait(0.05)
    gate.set()
    assert writer.close(10)
    assert names(tmp_path) == [1, 4]
    assert failures == []


# --- a disk that is full, or can only be read ------------------------------------------------------------------------


def test_a_full_disk_harms_nothing(small_disk: Path) -> None:
    failures: Failures = []
    writer = writer_of(small_disk, failures)
    writer.submit(part_of(1, numbers=50_000))  # 200 kB
    assert writer.wait(10)
    before = files_of(small_disk)
    writer.submit(part_of(2, numbers=500_000))  # 2 MB
    assert writer.wait(10)
    assert [(name, type(error), error.errno) for name, error in failures] == [("step-00000002", OSError, 28)]  # type: ignore[attr-defined]
    assert files_of(small_disk) == before  # no temporary file, no empty directory
    assert not (small_disk / "checkpoints" / "step-00000002").exists()
    writer.submit(part_of(3, numbers=50_000))
    assert writer.close(10)
    assert names(small_disk) == [1, 3]
    assert find_last_good(small_disk).problem() is None


def test_a_full_disk_harms_not_the_same_step_of_before(small_disk: Path) -> None:
    """Ranks that form anew may come by a step again."""
    write_part(small_disk, part_of(1, numbers=50_000))
    before = files_of(small_disk)
    failures: Failures = []
    writer = writer_of(small_disk, failures)
    writer.submit(part_of(1, numbers=500_000))
    assert writer.close(10)
    assert len(failures) == 1
    assert files_of(small_disk) == before
    assert find_last_good(small_disk).problem() is None


def test_a_disk_that_can_only_be_read_harms_nothing(small_disk: Path) -> None:
    write_part(small_disk, part_of(1))
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    failures: Failures = []
    writer = writer_of(small_disk, failures)
    writer.submit(part_of(2))
    assert writer.close(10)
    assert [(name, getattr(error, "errno", None)) for name, error in failures] == [("step-00000002", 30)]
    assert names(small_disk) == [1]
    assert find_last_good(small_disk).problem() is None


def test_a_file_in_the_way_harms_nothing(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").write_text("this is no directory")
    failures: Failures = []
    writer = writer_of(tmp_path, failures)
    writer.submit(part_of(1))
    assert writer.close(10)
    assert len(failures) == 1 and isinstance(failures[0][1], OSError)


def test_what_has_a_name_is_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test can pull the plug; but what is asked of the kernel, and when, decides what is there after a power cut."""
    told: list[str] = []
    sync, replace = os.fsync, Path.replace

    def noted(descriptor: int) -> None:
        told.append(f"synced {Path(f'/proc/self/fd/{descriptor}').readlink().relative_to(tmp_path)}")
        sync(descriptor)

    def renamed(path: Path, target: Path) -> Path:
        told.append(f"named {target.relative_to(tmp_path)}")
        return replace(path, target)

    monkeypatch.setattr(os, "fsync", noted)
    monkeypatch.setattr(Path, "replace", renamed)
    write_part(tmp_path, part_of(1))
    monkeypatch.undo()
    folder = "checkpoints/step-00000001"
    assert told == [
        "synced checkpoints",
        f"synced {folder}/.rank-0.safetensors.partial",
        f"synced {folder}/.rank-0.json.partial",
        f"named {folder}/rank-0.safetensors",
        f"synced {folder}",
        f"named {folder}/rank-0.json",
        f"synced {folder}",
    ]


# --- killed in the middle --------------------------------------------------------------------------------------------

CHILD = """
    import os, signal, sys, threading
    from pathlib import Path
    sys.path.insert(0, sys.argv[1])
    from test_writer import part_of
    from minga.training.checkpoints import files, writer

    ready = os.fdopen(int(sys.argv[2]), "w")
    orders = os.fdopen(int(sys.argv[3]))
    # The modules are loaded once: each line is a directory and a number of lines of the program, and a child that dies
    # when it has come to as many of them in what touches the disk.
    for line in orders:
        folder, lines = line.split()
        child = os.fork()
        if child == 0:
            run, left = Path(folder), int(lines)

            def trace(frame, event, argument):
                global left
                code = frame.f_code
                if code.co_filename not in (files.__file__, writer.__file__):
                    return None
                if code.co_name not in ("write_part", "write_partial", "give_name", "sync_directory", "prune"):
                    return None
                if event == "line":
                    left -= 1
                    if left < 0:
                        (run / "died").write_text(code.co_name)
                        os.kill(os.getpid(), signal.SIGKILL)
                return trace

            threading.settrace(trace)
            writing = writer.CheckpointWriter(run, keep=1, keep_best=False, failed=print)
            writing.submit(part_of(2, numbers=1_100_000))
            writing.wait()
            os._exit(0)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), file=ready, flush=True)
"""


@pytest.fixture
def dying(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[Path, int], int]]:
    """Saves in a child that kills itself at the n-th point; its exit code."""
    script = tmp_path_factory.mktemp("child") / "child.py"
    script.write_text(textwrap.dedent(CHILD))
    told, tell = os.pipe()
    hear, order = os.pipe()
    arguments = [sys.executable, str(script), str(Path(__file__).parent), str(tell), str(hear)]
    process = subprocess.Popen(arguments, pass_fds=[tell, hear])
    os.close(tell)
    os.close(hear)
    with os.fdopen(told) as answers, os.fdopen(order, "w") as orders:

        def save(run: Path, point: int) -> int:
            print(run, point, file=orders, flush=True)
            return int(answers.readline())

        yield save
    process.wait(10)


@pytest.mark.chaos
def test_killed_at_every_point_of_a_save(tmp_path: Path, dying: Callable[[Path, int], int]) -> None:
    places: set[str] = set()
    for point in range(300):
        run = tmp_path / str(point)
        write_part(run, part_of(1))
        code = dying(run, point)
        if code == 0:
            break
        assert code == -signal.SIGKILL
        place = (run / "died").read_text()
        places.add(place)
        (run / "died").unlink()
        last = find_last_good(run)
        saved = Checkpoint.of(run, "step-00000002").complete
        assert last.order[1] == (2 if saved else 1), place
        assert saved or place != "prune"
        assert last.problem() is None
        remove_leftovers(run)
        set_later_aside(run, last)
        assert not [name for name in files_of(run) if ".partial" in name]
        # The next save by a process that lives on is as if nothing had been.
        failures: Failures = []
        writer = writer_of(run, failures, keep=1, keep_best=False)
        writer.submit(part_of(3))
        assert writer.close(10)
        assert (names(run), failures) == ([3], [])
        shutil.rmtree(run)
    assert code == 0
    assert point >= 30
    assert places == {"write_part", "write_partial", "give_name", "sync_directory", "prune"}


def test_without_a_thread_the_failure_is_told_and_nobody_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_memory(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    failures: Failures = []
    writer = writer_of(tmp_path, failures)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", no_memory)
        writer.submit(part_of(1))
        assert [name for name, _ in failures] == ["step-00000001"]
        assert writer.close(10)
    assert names(tmp_path) == []


# --- damage ----------------------------------------------------------------------------------------------------


def cut_short(directory: Path) -> None:
    path = directory / "rank-1.safetensors"
    path.write_bytes(path.read_bytes()[:-100])


def flip_a_bit(directory: Path) -> None:
    path = directory / "rank-1.safetensors"
    content = bytearray(path.read_bytes())
    content[-8] ^= 1
    path.write_bytes(content)


def garble_manifest(directory: Path) -> None:
    (directory / "rank-1.json").write_text('{"format": 1')


def other_format(directory: Path) -> None:
    table = json.loads((directory / "rank-1.json").read_text())
    (directory / "rank-1.json").write_text(json.dumps({**table, "format": 99}))


def older_part(directory: Path) -> None:
    for path in (directory.parent / "step-00000001").glob("rank-1.*"):
        shutil.copy(path, directory)


def older_state(directory: Path) -> None:
    """With a manifest that says it is of this step."""
    older = directory.parent / "step-00000001"
    shutil.copy(older / "rank-1.safetensors", directory)
    table = json.loads((older / "rank-1.json").read_text())
    (directory / "rank-1.json").write_text(json.dumps({**table, "step": 2, "checkpoint": directory.name}))


def hostile_header(directory: Path) -> None:
    """Of a size that would take all memory, with the hash that fits it."""
    content = (1 << 62).to_bytes(8, "little") + b"{}"
    (directory / "rank-1.safetensors").write_bytes(content)
    table = json.loads((directory / "rank-1.json").read_text())
    named = {**table, "bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    (directory / "rank-1.json").write_text(json.dumps(named))


def pipe(name: str) -> Callable[[Path], None]:
    def make(directory: Path) -> None:
        (directory / name).unlink()
        os.mkfifo(directory / name)

    return make


DAMAGES = {
    "an older part": (older_part, "rank-1.json is of another checkpoint, step-00000001"),
    "an older state": (older_state, "rank-1.safetensors is of another step or rank"),
    "a hostile header": (hostile_header, "rank-1.safetensors is malformed"),
    "a pipe for data": (pipe("rank-1.safetensors"), "rank-1.safetensors is malformed: it is no file"),
    "a pipe for a manifest": (pipe("rank-1.json"), "rank-1.json can't be used: it is no file"),
    "cut short": (cut_short, "rank-1.safetensors has .* bytes instead of"),
    "a bit": (flip_a_bit, "rank-1.safetensors was changed"),
    "no manifest": (lambda directory: (directory / "rank-1.json").unlink(), "rank-1.json is missing"),
    "no data": (lambda directory: (directory / "rank-1.safetensors").unlink(), "rank-1.safetensors is missing"),
    "garbled": (garble_manifest, "rank-1.json can't be used: it is no JSON"),
    "other format": (other_format, "rank-1.json can't be used: it has format 99"),
    "empty": (lambda directory: [path.unlink() for path in directory.iterdir()], "no part of it is complete"),
    "part of a rank": (
        lambda directory: shutil.copy(directory / "rank-0.json", directory / "rank-1.json"),
        "rank-1.json is of rank 0 of 2",
    ),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_one_is_told_and_an_earlier_one_is_used(
    tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    damage, reason = DAMAGES[name]
    for step in (1, 2):
        for rank in (0, 1):
            write_part(tmp_path, part_of(step, rank=rank, ranks=2))
    damage(tmp_path / "checkpoints" / "step-00000002")
    assert find_last_good(tmp_path).name == "step-00000001"
    assert "step-00000002 can't be used" in caplog.text
    assert re.search(reason, caplog.text)
    set_later_aside(tmp_path, find_last_good(tmp_path))
    assert names(tmp_path) == [1]
    assert (tmp_path / "checkpoints" / "damaged-0-step-00000002").is_dir()


def test_no_checkpoint_and_none_that_is_good_are_errors_with_a_remedy(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"has no checkpoints.*minga train"):
        find_last_good(tmp_path)
    write_part(tmp_path, part_of(1, rank=0, ranks=2))
    with pytest.raises(CheckpointError, match=r"none of the 1 checkpoints.*minga checkpoints.*start again"):
        find_last_good(tmp_path)


def test_reading_a_changed_part_is_refused(tmp_path: Path) -> None:
    for rank in (0, 1):
        write_part(tmp_path, part_of(1, rank=rank, ranks=2))
    flip_a_bit(tmp_path / "checkpoints" / "step-00000001")
    with pytest.raises(CheckpointError, match="SHA-256"):
        read_part(Checkpoint.of(tmp_path, "step-00000001"), 1)
