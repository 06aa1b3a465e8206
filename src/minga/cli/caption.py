"""`minga caption`: what a trained network says of photographs, how good that is, and features of new ones."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from minga.cli.options import DataOption, JsonOption
from minga.cli.output import check_writable, present, say
from minga.errors import ConfigError, unknown

if TYPE_CHECKING:
    from minga.training.trained import Trained

__all__ = ["caption"]

_ON_A_PAGE = 12
_ENDINGS = (".jpg", ".jpeg", ".png", ".webp", ".bmp")


def caption(
    pictures: Annotated[
        list[str] | None, typer.Argument(metavar="IMAGE...", help="Files, or names of photographs of the data set.")
    ] = None,
    run: Annotated[
        Path | None,
        typer.Option(metavar="RUN", help="A run of flickr8k-captions, or of a workload like it."),
    ] = None,
    beam: Annotated[int, typer.Option(help="Sentences looked at for each picture (1: greedy).")] = 3,
    encoder: Annotated[
        str | None, typer.Option(help="For files: vgg16 (needs torchvision), or file.py:encoder.")
    ] = None,
    score: Annotated[str | None, typer.Option(metavar="SPLIT", help="BLEU-1..4 of a whole split: dev or test.")] = None,
    features_to: Annotated[
        Path | None, typer.Option(metavar="FILE.npz", help="Only compute a folder's features.")
    ] = None,
    page: Annotated[
        Path | None, typer.Option(metavar="FILE.html", help="Write pictures and captions as a page.")
    ] = None,
    photographs: Annotated[
        Path | None, typer.Option(metavar="DIR", help="For --page: where the data set's pictures are.")
    ] = None,
    data: DataOption = None,
    as_json: JsonOption = False,
) -> None:
    """Say what is in a picture, with a network that `minga train flickr8k-captions` has trained.

    Examples:

      minga caption dog.jpg --run runs/RUN --encoder vgg16

      minga caption 3385593926_d3e9c21170.jpg --run runs/RUN --data DIR

      minga caption --score test --beam 3 --run runs/RUN --data DIR

      minga caption --page captions.html --photographs Flicker8k_Dataset --run runs/RUN

      minga caption PHOTOGRAPHS --encoder vgg16 --features-to DIR/flickr8k/features_vgg16.npz
    """
    from minga.metrics.bleu_of_texts import bleu_of_texts
    from minga.runs.answering import Presentation
    from minga.training.trained import load_trained

    if beam < 1:
        raise ConfigError(f"--beam should be at least 1, not {beam}")
    for target in (features_to, page):
        if target is not None:
            check_writable(target)
    if features_to is not None:
        _compute_features(pictures or [], encoder, features_to, as_json=as_json)
        return
    if run is None:
        raise ConfigError("give the run that has trained the network: --run runs/RUN")
    trained = load_trained(run, data=data)
    if trained.workload.answer is None and isinstance(trained.workload.present, Presentation):
        raise _tells_none(run, trained)
    references = trained.workload.references
    if score is not None:
        if score not in references:
            raise unknown("split", score, references)
        told = _tell(run, trained, list(references[score]), None, beam)
        reached = bleu_of_texts(list(told.values()), list(references[score].values()))
        shown = "   ".join(f"{name} [bold]{value:.3f}[/]" for name, value in reached.items())
        present({"split": score, "beam": beam, **reached}, f"{score}, beam {beam}: {shown}", as_json=as_json)
        return
    if not pictures and page is not None:
        pictures = list(references.get("test", ()))[:_ON_A_PAGE]
    if not pictures:
        raise ConfigError("give a picture, or the name of a photograph of the data set")
    told = _tell(run, trained, pictures, encoder, beam)
    if page is not None:
        _write_page(page, photographs, trained, told, f"By {run.name}, beam {beam}. Below: what people said.")
    lines = [f"{name}: {sentence}" if len(told) > 1 else sentence for name, sentence in told.items()]
    present(told, lambda: print("\n".join(lines)), as_json=as_json)


def _tell(run: Path, trained: Trained, pictures: list[str], encoder: str | None, beam: int) -> dict[str, str]:
    """A caption for each; names of the data set need no encoder."""
    from minga.runs.answering import answer_takes
    from minga.workloads.captions.encoders import encode, load_encoder

    workload = trained.workload
    options = {"beam": beam} if workload.answer is not None and answer_takes(workload, "beam") else {}
    known = {name for split in workload.references.values() for name in split}
    files = [name for name in pictures if encoder is not None and name not in known and Path(name).is_file()]
    # Names that there is nothing of are told before an encoder is loaded.
    named = [name for name in pictures if name not in files]
    told = dict(
        zip(named, workload.respond_to_all(trained.model, [Path(name) for name in named], **options), strict=True)
    )
    if files and encoder is not None:
        seen = encode(load_encoder(encoder), [Path(name) for name in files])
        told |= zip(files, workload.respond_to_all(trained.model, list(seen.vectors), **options), strict=True)
    if not all(isinstance(sentence, str) for sentence in told.values()):
        raise _tells_none(run, trained)
    return {name: told[name] for name in pictures}


def _tells_none(run: Path, trained: Trained) -> ConfigError:
    return ConfigError(f"{run} trained {trained.experiment.workload}, which tells no captions; give another run")


def _write_page(page: Path, photographs: Path | None, trained: Trained, told: dict[str, str], note: str) -> None:
    from minga.report.pages.gallery import CaptionedPicture, gallery

    def file_of(name: str) -> Path | None:
        places = [Path(name), *([photographs / name] if photographs is not None else [])]
        return next((place for place in places if place.is_file()), None)

    captions = {name: said for split in trained.workload.references.values() for name, said in split.items()}
    shown = [CaptionedPicture(name, said, captions.get(name, ()), file_of(name)) for name, said in told.items()]
    try:
        page.write_text(gallery("Captions", note, shown), encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{page} can't be written: {error.strerror}; give another file") from None


def _compute_features(folders: list[str], encoder: str | None, target: Path, *, as_json: bool) -> None:
    from rich.progress import Progress

    from minga.workloads.captions.encoders import encode, load_encoder, save_features

    if len(folders) != 1 or not Path(folders[0]).is_dir():
        raise ConfigError("--features-to needs one folder of photographs: minga caption FOLDER --features-to FILE.npz")
    if encoder is None:
        raise ConfigError("give the encoder: --encoder vgg16, or file.py:encoder")
    if target.suffix != ".npz":
        raise ConfigError(f"--features-to {target} should end with .npz")
    found = sorted(path for path in Path(folders[0]).iterdir() if path.suffix.lower() in _ENDINGS)
    if not found:
        raise ConfigError(f"{folders[0]} has no pictures ({', '.join(_ENDINGS)})")
    skipped: dict[str, str] = {}
    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("photographs", total=len(found))
        features = encode(
            load_encoder(encoder), found, done=lambda count: bar.update(task, completed=count), skipped=skipped
        )
    try:
        save_features(target, features, encoder)
    except OSError as error:
        raise ConfigError(f"{target} can't be written: {error.strerror}; give another file") from None
    told_skipped = f"; {len(skipped):,} were skipped" if skipped else ""
    outcome = f"{len(features.names):,} photographs, {features.width:,} numbers each, in {target}{told_skipped}"
    lines = [*(f"skipped: {problem}" for problem in skipped.values()), outcome]
    present(
        {"photographs": len(features.names), "numbers": features.width, "file": str(target), "skipped": skipped},
        lambda: say("\n".join(lines), markup=False, stderr=True),
        as_json=as_json,
    )
