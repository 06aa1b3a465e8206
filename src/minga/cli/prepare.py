"""`minga data prepare`: a data set shaped, split, counted, and written so that it need not fit into memory."""

from __future__ import annotations

import dataclasses
import inspect
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from minga.cli.options import DataPathOption, JsonOption
from minga.cli.output import bars, present, say
from minga.errors import DataError

if TYPE_CHECKING:
    from minga.data.prepared.manifest import PreparedManifest

__all__ = ["prepare"]

_SHOWN_CLASSES = 30
_PICTURES = ("pictures", ("pictures", "idx", "cifar10"))
_TABLES = ("tables", ("table",))
_ONLY_OF = {
    "resize": _PICTURES,
    "grey": _PICTURES,
    "classes": ("folders of pictures", ("pictures",)),
    **dict.fromkeys(("target", "columns", "words", "task", "missing"), _TABLES),
    "context": ("texts", ("text",)),
}
_IS = {
    "pictures": "a folder of pictures",
    "idx": "a set of pictures in files of its own",
    "cifar10": "a set of pictures in files of its own",
    "table": "a table",
    "text": "a text",
    "captions": "one of captions and features",
}


def prepare(
    source: Annotated[
        str,
        typer.Argument(
            metavar="NAME|FOLDER|FILE", help="A fetched data set, a folder of pictures per class, a table, or a text."
        ),
    ],
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where the prepared set goes.")],
    resize: Annotated[str | None, typer.Option(metavar="WxH", help="Size of all pictures, such as 197x148.")] = None,
    grey: Annotated[bool, typer.Option("--grey", help="One channel instead of three.")] = False,
    dtype: Annotated[
        str | None, typer.Option(metavar="TYPE", help="Of inputs on disk: uint8, float16 or float32.")
    ] = None,
    normalise: Annotated[
        bool, typer.Option("--normalise", help="Subtract the training part's mean, divide by its deviation.")
    ] = False,
    split: Annotated[
        str | None,
        typer.Option(
            metavar="A,B,C", help="Train, validation, test in %; default: as given with the data, or 80,10,10"
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Decides the split and the order on disk.")] = 0,
    target: Annotated[str | None, typer.Option(metavar="COLUMN", help="Of a table: what is predicted.")] = None,
    columns: Annotated[
        str | None, typer.Option(metavar="A,B,...", help="Of a table: what it is predicted from; default: all others.")
    ] = None,
    words: Annotated[
        str | None, typer.Option(metavar="A,B,...", help="Of a table: numbers that are names, not amounts.")
    ] = None,
    task: Annotated[str, typer.Option(help="Of a table: classes, numbers, or auto.")] = "auto",
    missing: Annotated[str, typer.Option(help="Rows with empty fields: skip them, or put the mean.")] = "skip",
    context: Annotated[int, typer.Option(min=1, help="Of a text: characters of a sample.")] = 64,
    classes: Annotated[
        str | None, typer.Option(metavar="PATTERN", help="Which folders are classes, such as '* GT'; * is the class.")
    ] = None,
    jobs: Annotated[int | None, typer.Option("--jobs", "-j", min=1, help="Processes; default: one per core.")] = None,
    shard: Annotated[int, typer.Option("--shard-megabytes", min=1, help="About how large a file gets.")] = 64,
    replace: Annotated[bool, typer.Option("--replace", help="Replace a prepared set that is there already.")] = False,
    data: DataPathOption = None,
    as_json: JsonOption = False,
) -> None:
    """Prepare a data set for training: resize, split each class alike, count, and write it as shards.

    Pictures or rows that can't be used are skipped, counted and listed in skipped.jsonl. The result need not fit into
    memory, neither now nor in training. In a workload: PreparedDataset("prepared/fish", "train").

    Examples:

      minga data prepare fish --out prepared/fish --resize 197x148 --grey --dtype float16 --split 85,2,13

      minga data prepare DIR --out prepared/mine --resize 64x64 --normalise

      minga data prepare houses.csv --out prepared/houses --target price
    """
    from minga.data.directory import data_directory
    from minga.data.formats import origin_of_known, origin_of_path
    from minga.data.formats.base import PictureShape
    from minga.data.formats.tables import TableChoice
    from minga.data.preparing.prepare import Recipe, parse_size
    from minga.data.preparing.prepare import prepare as make
    from minga.data.sources import known_datasets
    from minga.data.split import parse_fractions

    known = known_datasets().get(source)
    origin = origin_of_known(known, data_directory(data)) if known is not None else origin_of_path(Path(source))
    of_tables = {"target": target, "columns": columns, "words": words, "task": task, "missing": missing}
    others = {"resize": resize, "grey": grey, "classes": classes, "context": context}
    _refuse_in_vain(origin.reader, source, of_tables | others)
    width, height = parse_size(resize) if resize is not None else (None, None)
    origin = dataclasses.replace(
        origin,
        picture=PictureShape(width=width, height=height, grey=grey),
        table=TableChoice(target=target, columns=_listed(columns), words=_listed(words), task=task, missing=missing),
        context=context,
        class_folders=classes or origin.class_folders,
    )
    recipe = Recipe(
        dtype=dtype,
        normalise=normalise,
        split=parse_fractions(split) if split is not None else None,
        seed=seed,
        shard_bytes=shard << 20,
        jobs=jobs,
    )
    made = make(
        origin,
        out.expanduser(),
        recipe,
        known=known,
        replace=replace,
        progress=bars(quiet=as_json),
    )
    answer = {"out": str(out), **json.loads(made.to_json())}
    present(answer, lambda: _print(made, out.expanduser()), as_json=as_json)


def _refuse_in_vain(reader: str, source: str, values: Mapping[str, Any]) -> None:
    """`DataError` for an option that would do nothing: whoever gave it expects something else of this data set."""
    options = inspect.signature(prepare).parameters
    for name, (what, readers) in _ONLY_OF.items():
        if values[name] != options[name].default and reader not in readers:
            raise DataError(f"--{name} is for {what}, and {source} is {_IS[reader]}; leave it out")


def _listed(text: str | None) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(",")) if text else ()


def _print(made: PreparedManifest, out: Path) -> None:
    from minga.report.numbers import size

    table = Table(title=f"{made.name}: samples of each class" if made.classes else made.name)
    table.add_column("class" if made.classes else "")
    for part in made.parts:
        table.add_column(part, justify="right")
    for name in made.classes[:_SHOWN_CLASSES]:
        table.add_row(escape(name), *(f"{part.classes[name]:,}" for part in made.parts.values()))
    if len(made.classes) > _SHOWN_CLASSES:
        table.add_row(f"... {len(made.classes) - _SHOWN_CLASSES} more", *("" for _ in made.parts))
    table.add_row("[bold]all[/]", *(f"{part.samples:,}" for part in made.parts.values()))
    Console(highlight=False).print(table)
    if counts := made.parts["train"].classes.values():
        smallest, largest = min(counts), max(counts)
        ratio = f"the largest has {largest / smallest:.2f} x the smallest" if smallest else "some class has none"
        say(f"balance of the training part: {ratio}")
    for name, field in made.fields.items():
        say(f"{name}: {field.dtype} {'x'.join(map(str, field.shape)) or 'one number'}")
    if made.normalisation is not None and len(made.normalisation.mean) <= 3:
        mean, deviation = made.normalisation.mean, made.normalisation.deviation
        say(f"mean {_numbers(mean)}, deviation {_numbers(deviation)} (of the training part)")
    if made.skipped:
        say(f"[yellow]{made.skipped:,} could not be used and were skipped[/]: see {out / 'skipped.jsonl'}")
    nbytes = sum(shard.bytes for part in made.parts.values() for shard in part.shards)
    files = sum(len(part.shards) for part in made.parts.values())
    say(f"{size(nbytes)} in {files} shards in {out}; licence: {escape(made.licence)}")


def _numbers(values: tuple[float, ...]) -> str:
    return " ".join(f"{value:.4f}" for value in values)
