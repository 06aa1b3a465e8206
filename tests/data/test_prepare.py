"""From original files to prepared sets: splits, statistics, bad samples, several processes, interruptions."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from safetensors.numpy import load_file

from minga.data.formats import Origin, origin_of_path
from minga.data.formats.base import PictureShape
from minga.data.formats.tables import TableChoice
from minga.data.prepared.manifest import PreparedManifest, verify_prepared
from minga.data.preparing import prepare as prepare_module
from minga.data.preparing.folder import new_folder
from minga.data.preparing.prepare import Recipe, parse_size, prepare
from minga.data.preparing.statistics import MeanAndDeviation
from minga.errors import DataError, RunError

CLASSES = {"rose": 40, "tulip": 20, "daisy": 21}


@pytest.fixture(scope="module")
def flowers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """81 pictures of 6x5; the first pixel is a number that tells them apart, the class is in the second."""
    folder = tmp_path_factory.mktemp("flowers")
    number = 0
    random = np.random.default_rng(0)
    for label, (name, count) in enumerate(CLASSES.items()):
        (folder / name).mkdir()
        for index in range(count):
            pixels = random.integers(0, 256, (5, 6, 3), dtype=np.uint8)
            pixels[0, 0], pixels[0, 1] = number, label
            Image.fromarray(pixels).save(folder / name / f"{index:03d}.png")
            number += 1
    return folder


def contents(out: Path, manifest: PreparedManifest, part: str) -> dict[str, Any]:
    """All samples of a part, as another library reads them."""
    shards = [load_file(out / shard.file) for shard in manifest.parts[part].shards]
    return {name: np.concatenate([shard[name] for shard in shards]) for name in manifest.fields}


def numbers(out: Path, manifest: PreparedManifest, part: str) -> list[int]:
    return contents(out, manifest, part)["inputs"][:, 0, 0, 0].tolist()  # type: ignore[no-any-return]


def test_every_sample_is_in_one_part_in_the_order_of_the_seed(flowers: Path, tmp_path: Path) -> None:
    made = prepare(origin_of_path(flowers), tmp_path / "out", Recipe(split=(0.5, 0.25, 0.25)))
    found = [number for part in made.parts for number in numbers(tmp_path / "out", made, part)]
    assert sorted(found) == list(range(81))
    assert found != sorted(found)
    again = prepare(origin_of_path(flowers), tmp_path / "again", Recipe(split=(0.5, 0.25, 0.25)))
    other = prepare(origin_of_path(flowers), tmp_path / "other", Recipe(split=(0.5, 0.25, 0.25), seed=1))
    assert again.parts == made.parts and other.parts != made.parts


def test_each_class_is_divided_alike(flowers: Path, tmp_path: Path) -> None:
    made = prepare(origin_of_path(flowers), tmp_path / "out", Recipe(split=(0.5, 0.25, 0.25)))
    assert {part: each.classes for part, each in made.parts.items()} == {
        "train": {"daisy": 11, "rose": 20, "tulip": 10},
        "validation": {"daisy": 5, "rose": 10, "tulip": 5},
        "test": {"daisy": 5, "rose": 10, "tulip": 5},
    }
    train = contents(tmp_path / "out", made, "train")
    drawn = {"rose": 0, "tulip": 1, "daisy": 2}
    assert all(drawn[made.classes[t]] == p[0, 0, 1] for p, t in zip(train["inputs"], train["targets"], strict=True))


def test_several_processes_make_the_same_bits(flowers: Path, tmp_path: Path) -> None:
    recipe = {"normalise": True, "dtype": "float16", "shard_bytes": 2000}
    one = prepare(origin_of_path(flowers), tmp_path / "one", Recipe(jobs=1, **recipe))  # type: ignore[arg-type]
    two = prepare(origin_of_path(flowers), tmp_path / "two", Recipe(jobs=2, **recipe))  # type: ignore[arg-type]
    assert one.parts == two.parts and one.normalisation == two.normalisation
    assert len(one.parts["train"].shards) > 2


def test_mean_and_deviation_are_those_of_the_training_part(flowers: Path, tmp_path: Path) -> None:
    made = prepare(origin_of_path(flowers), tmp_path / "out", Recipe(normalise=True))
    pixels = contents(tmp_path / "out", made, "train")["inputs"] / 255
    assert made.normalisation is not None
    assert made.normalisation.mean == pytest.approx(pixels.mean(axis=(0, 2, 3)))
    assert made.normalisation.deviation == pytest.approx(pixels.std(axis=(0, 2, 3)))


def test_resized_grey_and_half_as_long(flowers: Path, tmp_path: Path) -> None:
    origin = Origin(reader="pictures", path=str(flowers), picture=PictureShape(width=3, height=2, grey=True))
    made = prepare(origin, tmp_path / "out", Recipe(dtype="float16"))
    inputs = contents(tmp_path / "out", made, "train")["inputs"]
    assert inputs.dtype == np.float16 and inputs.shape[1:] == (1, 2, 3)
    assert inputs.min() >= 0 and 0.2 < inputs.max() <= 1 and made.scale == 1


@pytest.mark.parametrize("shard_bytes", [1 << 10, 1 << 20])
@pytest.mark.parametrize("jobs", [1, 2])
def test_bad_pictures_are_skipped_counted_and_listed(
    flowers: Path, tmp_path: Path, shard_bytes: int, jobs: int
) -> None:
    folder = tmp_path / "with bad ones"
    (folder / "rose").mkdir(parents=True)
    for index, path in enumerate(sorted((flowers / "rose").iterdir())):
        content = path.read_bytes()
        (folder / "rose" / path.name).write_bytes(content if index % 4 else b"no picture")
    Image.new("RGB", (6, 5)).save(folder / "rose" / "single.gif")
    recipe = Recipe(split=(0.6, 0.2, 0.2), shard_bytes=shard_bytes, jobs=jobs)
    origin = Origin(reader="pictures", path=str(folder), picture=PictureShape(width=6, height=5))
    made = prepare(origin, tmp_path / "out", recipe)
    assert made.skipped == 10
    skipped = [json.loads(line) for line in (tmp_path / "out" / "skipped.jsonl").read_text().splitlines()]
    assert [each["name"] for each in skipped] == [f"rose/{index:03d}.png" for index in range(0, 40, 4)]
    assert all("can't be read" in each["problem"] for each in skipped)
    assert sum(part.samples for part in made.parts.values()) == 31
    assert sum(part.classes["rose"] for part in made.parts.values()) == 31
    found = [number for part in made.parts for number in numbers(tmp_path / "out", made, part)]
    assert sorted(found) == sorted([0, *(index for index in range(40) if index % 4)])
    assert all(finding.state == "whole" for finding in verify_prepared(tmp_path / "out"))


def test_parts_that_are_given_stay_unless_others_are_asked_for(flowers: Path, tmp_path: Path) -> None:
    for part, name in (("train", "rose"), ("test", "tulip")):
        (tmp_path / "given" / part).mkdir(parents=True)
        (tmp_path / "given" / part / name).symlink_to(flowers / name)
    origin = origin_of_path(tmp_path / "given")
    assert {n: p.samples for n, p in prepare(origin, tmp_path / "a", Recipe()).parts.items()} == {
        "train": 40,
        "test": 20,
    }
    mixed = prepare(origin, tmp_path / "b", Recipe(split=(0.5, 0.0, 0.5)))
    assert {n: p.samples for n, p in mixed.parts.items()} == {"train": 30, "test": 30}


def test_a_table(tmp_path: Path) -> None:
    rows = "".join(f"{index},{'ab'[index % 2]},{index * 2.5}\n" for index in range(100))
    (tmp_path / "x.csv").write_text("number,letter,value\n" + rows + "1,,2\n")
    made = prepare(origin_of_path(tmp_path / "x.csv"), tmp_path / "out", Recipe(normalise=True, shard_bytes=1024))
    train = contents(tmp_path / "out", made, "train")
    assert train["inputs"].shape == (made.parts["train"].samples, 3) and made.skipped == 1
    assert np.array_equal(train["inputs"][:, 0] * 2.5, train["targets"])
    assert made.normalisation is not None and len(made.normalisation.mean) == 3
    assert made.facts["columns"] == ["number", "letter=a", "letter=b"] and made.classes == ()


def test_holes_get_the_mean_of_what_is_to_train_on(tmp_path: Path) -> None:
    rows = "".join(f"{'' if index % 5 == 0 else index**2},{index}.5\n" for index in range(200))
    (tmp_path / "x.csv").write_text("a,y\n" + rows)
    table = TableChoice(target="y", missing="mean")
    origin = dataclasses.replace(origin_of_path(tmp_path / "x.csv"), table=table)
    made = prepare(origin, tmp_path / "out", Recipe(split=(0.5, 0.0, 0.5)))
    train, test = (contents(tmp_path / "out", made, part) for part in ("train", "test"))
    known = train["inputs"][(train["targets"] - 0.5) % 5 != 0]
    for part in (train, test):
        holes = part["inputs"][(part["targets"] - 0.5) % 5 == 0]
        assert len(holes) > 5 and holes == pytest.approx(np.full_like(holes, known.mean()))
    assert known.mean() != pytest.approx(np.mean([index**2 for index in range(200) if index % 5]), rel=1e-3)


def test_a_text_is_cut_not_drawn(tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_text("".join(chr(97 + index % 26) for index in range(1001)))
    origin = Origin(reader="text", path=str(tmp_path / "x.txt"), context=10)
    made = prepare(origin, tmp_path / "out", Recipe())
    train = contents(tmp_path / "out", made, "train")
    assert train["inputs"].flatten().tolist() == [index % 26 for index in range(800)]
    assert train["inputs"].dtype == np.uint8 and made.scale == 1 and made.parts["test"].samples == 10


# --- folders and failures ------------------------------------------------------------------------------------------


def test_what_exists_is_replaced_only_when_asked(flowers: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    prepare(origin_of_path(flowers), out, Recipe())
    with pytest.raises(DataError, match="exists already; give --replace"):
        prepare(origin_of_path(flowers), out, Recipe())
    made = prepare(origin_of_path(flowers), out, Recipe(seed=5), replace=True)
    assert PreparedManifest.load(out) == made
    (tmp_path / "precious").mkdir()
    with pytest.raises(DataError, match="another folder"):
        prepare(origin_of_path(flowers), tmp_path / "precious", Recipe(), replace=True)


def test_what_fails_leaves_nothing_behind(flowers: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "place"
    monkeypatch.setattr("minga.data.preparing.prepare._write_skipped", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        prepare(origin_of_path(flowers), place / "out", Recipe())
    assert list(place.iterdir()) == []


def test_two_at_once_do_not_lose_the_first(flowers: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another one has made the same folder while this one was at work: it stays, and this one is told."""
    out = tmp_path / "out"
    plain = prepare_module._write_skipped

    def and_another(*arguments: Any) -> None:
        monkeypatch.setattr(prepare_module, "_write_skipped", plain)
        prepare(origin_of_path(flowers), out, Recipe(seed=7))
        plain(*arguments)

    monkeypatch.setattr(prepare_module, "_write_skipped", and_another)
    with pytest.raises(DataError, match="exists already"):
        prepare(origin_of_path(flowers), out, Recipe(seed=8))
    assert PreparedManifest.load(out).recipe["seed"] == 7
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_what_a_killed_one_has_left_is_removed_by_the_next(flowers: Path, tmp_path: Path) -> None:
    (tmp_path / ".minga-preparing-out-abcdefgh").mkdir()
    (tmp_path / ".minga-preparing-out-abcdefgh" / "train-00000.safetensors").write_bytes(b"half")
    with new_folder(tmp_path / "out") as at_work:  # one that is alive is left alone
        prepare(origin_of_path(flowers), tmp_path / "out", Recipe())
        assert sorted(path.name for path in tmp_path.iterdir()) == sorted([at_work.name, "out"])
        (tmp_path / "out").rename(tmp_path / "done")


def test_a_killed_process_is_told(flowers: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    me = psutil.Process()

    def kill(*_: Any) -> None:
        for child in me.children():
            with contextlib.suppress(psutil.Error):  # one that was killed at the advance before
                if "spawn_main" in " ".join(child.cmdline()):
                    child.kill()

    monkeypatch.setattr(prepare_module, "_CHUNK_BYTES", 1)
    with pytest.raises(RunError, match="was killed, perhaps for want of memory"):
        prepare(origin_of_path(flowers), tmp_path / "out", Recipe(jobs=2), progress=Each(kill))
    assert list(tmp_path.iterdir()) == []


class Each:
    """Progress that does something at each advance."""

    def __init__(self, act: Callable[..., None]) -> None:
        self._act = act

    @contextlib.contextmanager
    def task(self, *_: Any, **__: Any) -> Iterator[Callable[..., None]]:
        yield self._act


def test_numbers_that_a_type_cannot_hold_are_refused(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("a,y\n" + "".join(f"{index * 1000},{index}.5\n" for index in range(100)))
    with pytest.raises(DataError, match="float16 can't hold; use --dtype float32"):
        prepare(origin_of_path(tmp_path / "x.csv"), tmp_path / "out", Recipe(dtype="float16"))
    assert [path.name for path in tmp_path.iterdir()] == ["x.csv"]


def test_words_for_no_number_do_not_make_a_column_one_of_words(tmp_path: Path) -> None:
    rows = "".join(
        f"{'NA' if index == 5 else index},{'none' if index % 2 else 'some'},{index}.5\n" for index in range(50)
    )
    (tmp_path / "x.csv").write_text("a,b,y\n" + rows)
    made = prepare(origin_of_path(tmp_path / "x.csv"), tmp_path / "out", Recipe())
    assert made.facts["columns"] == ["a", "b=none", "b=some"] and made.skipped == 1
    assert "'NA', not a number" in (tmp_path / "out" / "skipped.jsonl").read_text()


def test_characters_are_not_normalised(tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_text("abcd" * 200)
    with pytest.raises(DataError, match="leave out --normalise"):
        prepare(origin_of_path(tmp_path / "x.txt"), tmp_path / "out", Recipe(normalise=True))


def test_a_disk_that_is_too_small_is_told_before(tmp_path: Path, small_disk: Path) -> None:
    rows = "".join(f"{index},{index}\n" for index in range(150_000))
    (tmp_path / "x.csv").write_text("a,b\n" + rows)
    with pytest.raises(DataError, match=r"needs 1,2\d\d,\d\d\d more bytes.*--out"):
        prepare(origin_of_path(tmp_path / "x.csv"), small_disk / "out", Recipe(dtype="float32"))
    assert list(small_disk.iterdir()) == []


def test_nothing_that_can_be_used(tmp_path: Path) -> None:
    (tmp_path / "in" / "a").mkdir(parents=True)
    (tmp_path / "in" / "a" / "x.png").write_bytes(b"nothing")
    origin = Origin(reader="pictures", path=str(tmp_path / "in"), picture=PictureShape(width=2, height=2))
    with pytest.raises(DataError, match="not a single sample can be used: it can't be read"):
        prepare(origin, tmp_path / "out", Recipe())


def test_damage_is_found(flowers: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    made = prepare(origin_of_path(flowers), out, Recipe(shard_bytes=2000))
    first, second, third = (shard.file for shard in made.parts["train"].shards[:3])
    content = bytearray((out / first).read_bytes())
    content[-1] ^= 1
    (out / first).write_bytes(content)
    (out / second).write_bytes(b"short")
    (out / third).unlink()
    found = {finding.name: finding.state for finding in verify_prepared(out) if finding.wrong}
    assert found == {first: "damaged", second: "damaged", third: "missing"}
    (out / "manifest.json").write_text("{}")
    assert [finding.state for finding in verify_prepared(out)] == ["damaged"]


@pytest.mark.parametrize(
    "change",
    [
        {"format": 99},
        {"parts": {"train": {"samples": 3, "classes": {}, "shards": []}}},
        {"fields": {"inputs": {"dtype": "object", "shape": []}}},
        {"normalisation": {"nonsense": [1]}},
    ],
)
def test_a_manifest_that_cannot_be_is_refused(flowers: Path, tmp_path: Path, change: dict[str, Any]) -> None:
    prepare(origin_of_path(flowers), tmp_path / "out", Recipe())
    table = json.loads((tmp_path / "out" / "manifest.json").read_text())
    (tmp_path / "out" / "manifest.json").write_text(json.dumps({**table, **change}))
    with pytest.raises(DataError):
        PreparedManifest.load(tmp_path / "out")


def test_a_shard_outside_of_the_folder_is_refused(flowers: Path, tmp_path: Path) -> None:
    prepare(origin_of_path(flowers), tmp_path / "out", Recipe())
    text = (tmp_path / "out" / "manifest.json").read_text()
    (tmp_path / "out" / "manifest.json").write_text(text.replace("train-00000", "../train-00000"))
    with pytest.raises(DataError, match="can't be as it says"):
        PreparedManifest.load(tmp_path / "out")


# --- the pieces ----------------------------------------------------------------------------------------------------


@given(st.lists(st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=6), min_size=1, max_size=6))
@settings(deadline=None)
def test_moments_of_pieces_are_those_of_the_whole(pieces: list[list[float]]) -> None:
    joined = None
    for piece in pieces:
        part = MeanAndDeviation.of([np.array([value]) for value in piece], 2.0)
        assert part is not None
        joined = part if joined is None else joined.joined(part)
    whole = 2 * np.concatenate(pieces)
    assert joined is not None and joined.mean[0] == pytest.approx(whole.mean(), abs=1e-9)
    assert joined.squares[0] == pytest.approx(((whole - whole.mean()) ** 2).sum(), abs=1e-6)


def test_values_that_are_all_the_same_have_deviation_1() -> None:
    moments = MeanAndDeviation.of([np.array([3.0, 1.0]), np.array([3.0, 2.0])], 1.0)
    assert moments is not None and moments.deviation.tolist() == [1.0, 0.5]


def test_sizes_as_people_write_them() -> None:
    assert parse_size("197x148") == (197, 148) and parse_size("16384X1") == (16384, 1)
    for wrong in ("197", "0x3", "axb", "-1x2", "²x3", "1x2x3", "99999999999x1", "100000x100000", "16385x1"):
        with pytest.raises(DataError, match="such as 197x148"):
            parse_size(wrong)
