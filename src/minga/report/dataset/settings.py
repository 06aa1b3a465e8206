"""What was set in an experiment, by path; and names for groups of runs, made only of what differs between them.

read_settings(run, follower.facts)["cluster.nodes"]        # 4

Settings are read as they were written down, without the classes that they are of: a strategy of a user's own may be
gone, and loading it would run it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from minga.base.spec import Named, describe
from minga.base.toml_files import read_toml
from minga.base.units import parse_bandwidth, parse_duration
from minga.errors import ConfigError
from minga.measure.events import RunFacts
from minga.report.numbers import count

__all__ = [
    "WHOLE",
    "bandwidth_text",
    "comparable",
    "differing",
    "flatten",
    "in_lab",
    "labels",
    "read_settings",
    "shown_value",
    "telling",
    "text_of",
]

_NOT_A_SETTING = ("training.seed", "runs", "data", "cluster.port", "cluster.timeout_seconds")
"""Where things lie and which repetition it is: runs that differ only in these are the same experiment."""

WHOLE = ("strategy", "codec")
"""Tables at these places are one value, not a folder of paths."""

_BANDWIDTH = "cluster.network.bandwidth"
_PATTERNS = {
    "cluster.network.delay": "{} delay",
    "cluster.network.jitter": "{} jitter",
    "cluster.network.loss": "{} packet loss",
    "cluster.speeds": "speeds {}",
    "cluster.cpu": "{} cores",
    "training.batch": "batch {}",
    "training.total_batch": "batch {} in all",
    "training.epochs": "{} epochs",
    "training.steps": "{} steps",
    "training.learning_rate": "learning rate {}",
    "training.learning_rate_rule": "{} learning rate",
}
_BARE = ("workload", "strategy", _BANDWIDTH, "cluster.device")
_ORDER = ("workload", "cluster.nodes", _BANDWIDTH, "cluster.network.delay", "strategy")


def read_settings(run: Path, facts: RunFacts) -> dict[str, Any]:
    """Every setting of a run by its path, default ones too; `facts`: what its events say of it."""
    path = run / "experiment.toml"
    table = flatten(read_toml(path)[1])
    flat = {name: tuple(value) if isinstance(value, list) else value for name, value in table.items()}
    for name, kind, usual in (("workload", str, None), ("cluster.nodes", int, 1), ("training.seed", int, 0)):
        if not isinstance(flat.setdefault(name, usual), kind):
            raise ConfigError(
                f"{path}: {name} is {flat[name]!r}; restore the file as minga wrote it, or leave the run out"
            )
    flat["strategy"] = text_of(flat.get("strategy") or facts.strategy or _usual_strategy(flat))
    return flat


def _usual_strategy(settings: Mapping[str, Any]) -> str:
    """The one that is meant where neither the description of a run nor its events say it."""
    alone, gpus = settings["cluster.nodes"] == 1, settings.get("cluster.device") == "cuda"
    return "single" if alone else "native" if gpus else "adaptive"


def comparable(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Those that can make two runs differ."""
    return {path: value for path, value in settings.items() if path not in _NOT_A_SETTING}


def flatten(table: Mapping[str, Any], outer: str = "") -> dict[str, Any]:
    """{"cluster": {"nodes": 2}} as {"cluster.nodes": 2}; TOML writes either."""
    flat: dict[str, Any] = {}
    for key, value in table.items():
        path = f"{outer}{key}"
        folder = isinstance(value, Mapping) and value and path not in WHOLE
        flat |= flatten(value, f"{path}.") if folder else {path: value}
    return flat


def text_of(value: Any) -> str:
    """A value as people write it in one line."""
    if isinstance(value, Named):
        return describe(value)
    if isinstance(value, Mapping):  # a strategy as a table, written as a string
        fields = ",".join(f"{key}={text_of(item)}" for key, item in value.items() if key != "name")
        name = str(value.get("name", ""))
        return f"{name}:{fields}" if name and fields else name or fields
    return ",".join(map(text_of, value)) if isinstance(value, list | tuple) else str(value)


def differing(groups: Sequence[Mapping[str, Any]]) -> list[str]:
    """The paths whose values are not the same in all groups, the most telling first."""
    paths = {path for settings in groups for path in settings}
    found = [path for path in paths if not _same(groups, path)]
    return sorted(found, key=lambda path: (_ORDER.index(path) if path in _ORDER else len(_ORDER), path))


def telling(groups: Sequence[Mapping[str, Any]]) -> list[str]:
    """Of the differing paths those that say more than the number of nodes does.

    A node alone has no strategy and no network, and its batch is everybody's: what all runs on one node have in
    common, and all others too, need not be said again.
    """
    alone = [settings for settings in groups if settings.get("cluster.nodes") == 1]
    together = [settings for settings in groups if settings.get("cluster.nodes") != 1]
    found = differing(groups)
    if not alone or not together:
        return found
    return [path for path in found if path == "cluster.nodes" or not (_same(alone, path) and _same(together, path))]


def _same(groups: Sequence[Mapping[str, Any]], path: str) -> bool:
    # Repr instead of the value: 1 and True are equal, and a file may hold what can't be hashed.
    return len({repr(settings.get(path)) for settings in groups}) <= 1


def labels(groups: Sequence[Mapping[str, Any]], leaving_out: Sequence[str] = ()) -> list[str]:
    """A name for each group, of what differs between them; `leaving_out`: paths that are said in another way."""
    paths = [path for path in telling(groups) if path not in leaving_out]
    if not paths and not leaving_out:
        paths = ["workload", "cluster.nodes", "strategy"]
    return [", ".join(part for path in paths if (part := _part(path, settings))) for settings in groups]


def _part(path: str, settings: Mapping[str, Any]) -> str:
    value = settings.get(path)
    if path == _BANDWIDTH:
        if value is None and settings.get("cluster.nodes") == 1:
            return ""
        return bandwidth_text(settings)
    if path == "cluster.nodes":
        return count(settings[path], "node")
    if path == "strategy" and value == "single" and settings.get("cluster.nodes") == 1:
        return ""
    if value is None or value == () or (path.startswith("cluster.network.") and not value):
        return ""
    shown = shown_value(path, value)
    if path in _BARE:
        return shown
    return _PATTERNS.get(path, path.rpartition(".")[2].replace("_", " ") + " {}").format(shown)


def bandwidth_text(settings: Mapping[str, Any]) -> str:
    """`10 Mbit/s`; in a lab without a limit `unlimited`, without a lab `loopback`."""
    if (value := settings.get(_BANDWIDTH)) is not None:
        return shown_value(_BANDWIDTH, value)
    return "unlimited" if in_lab(settings) else "loopback"


def in_lab(settings: Mapping[str, Any]) -> bool:
    """Whether the run's hosts had a network or shares of the processor of their own."""
    shaped = settings.get("cluster.cpu") or settings.get("cluster.pin")
    return bool(shaped) or any(path.startswith("cluster.network") for path in settings)


def shown_value(path: str, value: Any) -> str:
    """A setting's value as people read it."""
    name = path.rpartition(".")[2]
    try:
        if name in ("bandwidth", "up", "down"):
            return _with_unit(float(parse_bandwidth(value)), {"Gbit/s": 1e9, "Mbit/s": 1e6, "kbit/s": 1e3, "bit/s": 1})
        if name in ("delay", "jitter") and path.startswith("cluster.network"):
            return _with_unit(float(parse_duration(value)), {"s": 1, "ms": 1e-3, "µs": 1e-6})
    except (ConfigError, TypeError, ValueError):
        return str(value)
    if name == "loss" and isinstance(value, float):
        return f"{100 * value:g} %"
    if name == "strategy" and ".py:" in str(value):
        file, _, rest = str(value).partition(".py:")
        return f"{Path(file).name}.py:{rest}"
    if isinstance(value, tuple | list):
        return ", ".join(f"{each:g}" if isinstance(each, float) else str(each) for each in value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _with_unit(value: float, units: Mapping[str, float]) -> str:
    unit = next((unit for unit, size in units.items() if value >= size), next(iter(units)))
    return f"{value / units[unit]:.4g} {unit}"
