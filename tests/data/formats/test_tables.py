"""Tables: what columns become, and slips: rows of another length, a word among numbers, no line of names."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from minga.data.formats import Origin, open_reader, origin_of_path
from minga.data.formats.base import BadSample
from minga.data.formats.tables import TableChoice
from minga.errors import ConfigError, DataError

CSV = """size, color, weight, kind
1, red, 0.5, apple
2, green, 1.5, pear
3, red, 2.5, apple
"""


def table(path: Path, text: str, **choice: Any) -> Any:
    path.write_text(text)
    return open_reader(Origin(reader="table", path=str(path), table=TableChoice(**choice)))


def problems(reader: Any) -> dict[int, str]:
    outcomes = enumerate(reader.samples(range(len(reader))))
    return {index: str(outcome) for index, outcome in outcomes if isinstance(outcome, BadSample)}


def test_rows_of_another_length_do_not_decide_what_a_column_is(tmp_path: Path) -> None:
    reader = table(tmp_path / "x.csv", "a,b,y\n1,2,no\n3,4,yes\nsome,words\nfar,too,many,fields\n")
    assert reader.facts["columns"] == ["a", "b"] and reader.classes == ["no", "yes"]
    assert problems(reader) == {2: "it has 2 fields instead of 3", 3: "it has 4 fields instead of 3"}


@pytest.mark.parametrize("separator", [";", "\t", "|"])
def test_what_stands_between_columns_is_seen_in_the_first_line(tmp_path: Path, separator: str) -> None:
    lines = ["a,b,y", "1,2.5,no", "3,4,yes"]
    reader = table(tmp_path / "x.csv", "\n".join(line.replace(",", separator) for line in lines))
    assert reader.facts["columns"] == ["a", "b"] and reader.classes == ["no", "yes"]


def with_a_slip(rows: int, *, column: int) -> str:
    """The last row has a word in one of the columns a and y."""
    lines = [[str(index), str(index % 3)] for index in range(rows)]
    lines[-1][column] = "oops"
    return "a,y\n" + "".join(",".join(line) + "\n" for line in lines)


@pytest.mark.parametrize("missing", ["skip", "mean"])
def test_a_word_among_many_numbers_costs_its_row_alone(tmp_path: Path, missing: str) -> None:
    reader = table(tmp_path / "x.csv", with_a_slip(200, column=0), missing=missing)
    assert reader.facts["columns"] == ["a"]
    assert problems(reader) == {199: "its 'a' is 'oops', not a number"}


def test_among_few_numbers_words_are_words(tmp_path: Path) -> None:
    reader = table(tmp_path / "x.csv", with_a_slip(50, column=0))
    assert "a=oops" in reader.facts["columns"] and problems(reader) == {}


def test_a_word_among_many_targets(tmp_path: Path) -> None:
    reader = table(tmp_path / "x.csv", with_a_slip(200, column=1))
    assert reader.classes == ["0", "1", "2"]
    assert problems(reader) == {199: "its target is 'oops', not a number"}
    asked_for = table(tmp_path / "y.csv", with_a_slip(200, column=1), task="classes")
    assert asked_for.classes == ["0", "1", "2", "oops"] and problems(asked_for) == {}


def test_yes_and_no_in_parquet_are_classes(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    columns = {"size": [1, 2, 3, 4], "ripe": [True, False, None, True]}
    parquet.write_table(pyarrow.table(columns), tmp_path / "fruit.parquet")
    reader = open_reader(origin_of_path(tmp_path / "fruit.parquet"))
    assert reader.classes == ["False", "True"] and reader.labels is not None
    assert reader.labels.tolist() == [1, 0, -1, 1] and problems(reader) == {2: "its target is empty"}


@pytest.mark.parametrize("first", ["5.1,3.5,setosa", "label,7", "-1e3,a"])
def test_a_table_without_names_is_refused(tmp_path: Path, first: str) -> None:
    with pytest.raises(DataError, match=r"should name the columns, and has '(5\.1|7|-1e3)', a number: put a line"):
        table(tmp_path / "x.csv", f"{first}\n4.9,3.0,setosa\n")


def test_columns_may_be_counted(tmp_path: Path) -> None:
    assert table(tmp_path / "x.csv", "0,1,2,label\n5,6,7,a\n8,9,1,b\n").facts["columns"] == ["0", "1", "2"]


def test_endings_may_be_written_large(tmp_path: Path) -> None:
    (tmp_path / "A.CSV").write_text("a,y\n1,x\n2,z\n")
    assert len(open_reader(origin_of_path(tmp_path / "A.CSV"))) == 2
    (tmp_path / "B.TSV.GZ").write_bytes(gzip.compress(b"a\ty\n1\tx\n2\tz\n"))
    assert open_reader(origin_of_path(tmp_path / "B.TSV.GZ")).classes == ["x", "z"]
    (tmp_path / "C.TXT").write_text("to be or not to be, " * 10)
    assert origin_of_path(tmp_path / "C.TXT").reader == "text"


def test_numbers_have_commas_where_semicolons_are_between_columns(tmp_path: Path) -> None:
    """As spreadsheets write them in half of the world; each was a word of its own once."""
    reader = table(tmp_path / "x.csv", "size;city;price\n12,5;Quito;1,25\n-3;Lima, Perú;0,5\n,5;Quito;2e3\n")
    assert reader.facts["columns"] == ["size", "city=Lima, Perú", "city=Quito"]
    assert reader.facts["task"] == "numbers" and problems(reader) == {}
    assert [reader.read(index)["inputs"][0] for index in range(3)] == [12.5, -3, 0.5]
    assert [float(reader.read(index)["targets"]) for index in range(3)] == [1.25, 0.5, 2000]


@pytest.mark.parametrize("text", ["a,b\n{},1\n{},2\n7,3\n", "b\ta\n1\t{}\n2\t{}\n3\t7\n"])
@pytest.mark.parametrize("number", ["12,500", "1.234,50", "-1,234,567.8"])
def test_commas_that_may_mean_anything_are_refused(tmp_path: Path, text: str, number: str) -> None:
    written = text.format(*[f'"{number}"'] * 2)
    message = f"the column 'a' has numbers with commas, such as {number!r}: write them as 1234.5"
    with pytest.raises(DataError, match=message):
        table(tmp_path / "x.csv", written)
    target = {"target": "a"}
    with pytest.raises(DataError, match=rf"{message}.*--task classes"):
        table(tmp_path / "x.csv", written, **target)
    with pytest.raises(DataError, match=message):
        table(tmp_path / "x.csv", written, task="numbers", **target)
    assert table(tmp_path / "x.csv", written, task="classes", **target).classes == sorted(["7", number])
    named = table(tmp_path / "x.csv", written, target="b", words=("a",))
    assert named.facts["columns"] == [f"a={word}" for word in sorted(["7", number])]


def test_another_encoding_is_told_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_bytes("a,city\n1,Córdoba\n".encode("latin-1"))
    with pytest.raises(DataError, match=r"x\.csv is not in UTF-8 \(.*\); save it as UTF-8"):
        open_reader(Origin(reader="table", path=str(tmp_path / "x.csv")))


def test_a_table_with_classes(tmp_path: Path) -> None:
    reader = table(tmp_path / "fruit.csv", CSV)
    assert reader.classes == ["apple", "pear"] and reader.labels.tolist() == [0, 1, 0]
    assert reader.facts["columns"] == ["size", "color=green", "color=red", "weight"]
    assert reader.read(1)["inputs"].tolist() == [2, 1, 0, 1.5] and int(reader.read(1)["targets"]) == 1


def test_a_table_with_numbers_to_tell(tmp_path: Path) -> None:
    reader = table(tmp_path / "fruit.csv", CSV, target="weight", columns=("size",))
    assert reader.classes == () and reader.facts["task"] == "numbers"
    assert reader.read(2) == {"inputs": np.array([3.0]), "targets": np.float32(2.5)}


def test_whole_numbers_are_classes_where_they_are_few(tmp_path: Path) -> None:
    assert table(tmp_path / "a.csv", CSV, target="size").classes == ["1", "2", "3"]
    assert table(tmp_path / "b.csv", CSV, target="size", task="numbers").classes == ()
    assert table(tmp_path / "c.csv", "x,y\n1,10\n1,9\n1,2\n").classes == ["2", "9", "10"]


def test_numbers_that_are_names(tmp_path: Path) -> None:
    reader = table(tmp_path / "a.csv", CSV, columns=("size",), words=("size",))
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
    plain = table(tmp_path / "fruit.csv", CSV)
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
