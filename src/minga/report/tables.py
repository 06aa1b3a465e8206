"""The tables of a report: what came out, what it took, under which circumstances.

One without rows is left out of the report."""

from __future__ import annotations

import importlib.metadata
import math
import os
import platform
from collections.abc import Sequence
from functools import partial
from typing import Any

from minga._version import __version__
from minga.report.dataset.groups import Dataset, RunGroup
from minga.report.dataset.links import links_of
from minga.report.dataset.settings import shown_value
from minga.report.dataset.statistics import Spread
from minga.report.dataset.targets import Target, reached
from minga.report.figures.curves import curve_of, file_name
from minga.report.figures.phases import PHASES
from minga.report.numbers import estimate_mark, shown_metric, size
from minga.report.table import Column, Table, show_number, show_percent, show_ratio, show_seconds

__all__ = [
    "common_table",
    "curve_tables",
    "difference_table",
    "energy_table",
    "failure_table",
    "group_table",
    "link_table",
    "made_table",
    "metric_tables",
    "phase_table",
    "run_table",
    "target_table",
    "traffic_table",
    "usage_table",
]

_LARGEST = 30
_METRICS = 4
_GROUP = Column("group", "group", text=True)
_RANK = Column("rank", "rank", text=True)


def _metric_column(name: str, *, spread: bool) -> Column:
    return Column(name.replace(" ", "_"), name, partial(shown_metric, name), spread)


def group_table(dataset: Dataset) -> Table:
    rows = []
    for group in dataset.groups:
        speedup = dataset.speedup(group)
        efficiency = speedup.divided_by(group.nodes) if speedup else None
        exchange = group.share("exchange", "wait") if group.nodes > 1 else None
        waiting = group.share("wait") / exchange if exchange else None
        rows.append(
            {
                _GROUP: group.label,
                Column("nodes", "nodes"): group.nodes,
                Column("n", "n"): group.n,
                Column("seconds", "training time", show_seconds, spread=True): group.seconds,
                Column("samples_per_second", "samples/s", show_number, spread=True): group.samples_per_second,
                Column("speedup", "speedup", show_ratio, spread=True): speedup,
                Column("efficiency", "efficiency", show_percent, spread=True): efficiency,
                **{_metric_column(name, spread=True): group.metric(name) for name in dataset.metrics()[:_METRICS]},
                Column("exchange_share", "exchange", show_percent): exchange,
                Column("waiting_share", "of it waiting", show_percent): waiting,
            }
        )
    note = "One run each: differences of a few percent are noise."
    if dataset.repeated:
        note = "Medians, each with the lowest and the highest repetition; n is the number of repetitions."
    return Table.of("groups", "All groups", rows, note)


def run_table(dataset: Dataset) -> Table:
    metrics = dataset.metrics()[:_METRICS]
    rows = [
        {
            Column("run", "run", text=True): run.directory.name,
            _GROUP: group.label,
            Column("seed", "seed"): run.seed,
            Column("seconds", "training time", show_seconds): run.finished.seconds,
            Column("steps", "steps", show_number): run.finished.steps,
            Column("epochs", "epochs", show_number): run.finished.epochs,
            **{_metric_column(name, spread=False): run.finished.metrics.get(name) for name in metrics},
            Column("bytes_sent", "sent", size): run.finished.bytes_sent,
            Column("simulated", "simulated", text=True): "simulated" if run.simulated else None,
        }
        for group in dataset.groups
        for run in group.runs
    ]
    return Table.of("runs", "All runs", rows)


def target_table(dataset: Dataset, target: Target) -> Table:
    rows = []
    for group in dataset.groups:
        spread, count = reached(group, target)
        rows.append(
            {
                _GROUP: group.label,
                Column("target", "", text=True): target.text,
                Column("seconds_to_target", f"time to {target.text}", show_seconds, spread=True): spread,
                Column("reached", "runs that reach it", text=True): f"{count} of {group.n}",
            }
        )
    return Table.of("time-to-target", f"Time to {target.text}", rows, f"The target is {target.reason}.")


def curve_tables(dataset: Dataset) -> list[Table]:
    """What the curves are drawn from; as CSV only."""
    tables = []
    for metric in dataset.metrics() or ["training loss"]:
        rows = [
            {
                _GROUP: group.label,
                Column("epoch", "epoch"): point.epoch,
                Column("seconds", "training time"): point.seconds,
                _metric_column(metric, spread=True): point.value,
            }
            for group in dataset.groups
            for point in curve_of(group, metric)
            if math.isfinite(point.seconds)
        ]
        tables.append(Table.of(f"{file_name(metric)}-curves", metric, rows, only_csv=True))
    return tables


def metric_tables(dataset: Dataset) -> list[Table]:
    """Metrics that are tables, such as confusion matrices: those of each group's first run, at its end."""
    return [
        Table(
            f"{file_name(metric)}-{number}",
            f"{metric[:1].upper()}{metric[1:]}: {group.label}",
            [Column("row", "", text=True), *(Column(str(at), str(at), show_number) for at in range(len(rows)))],
            [[str(at), *row] for at, row in enumerate(rows)],
            f"Of {group.runs[0].directory.name}. A row for each true class, a column for what was predicted.",
            only_csv=len(rows) > _LARGEST,
        )
        for number, group in enumerate(dataset.groups, start=1)
        for metric, rows in group.runs[0].finished.tables.items()
    ]


def phase_table(dataset: Dataset) -> Table:
    present = {name for group in dataset.groups for rank in group.phases for name in rank.seconds}
    headings = {name: PHASES[name][0] for name in PHASES if name in present}
    headings |= {name: name for name in sorted(present - set(PHASES))}
    rows = [
        {
            _GROUP: group.label,
            _RANK: rank.name,
            Column("role", "role", text=True): rank.role,
            **{
                Column(f"{name}_seconds", heading, show_seconds): rank.seconds.get(name)
                for name, heading in headings.items()
            },
            Column("waiting_share", "waiting, share", show_percent): rank.waiting_share,
        }
        for group in dataset.groups
        for rank in group.phases
    ]
    return Table.of("phases", "Where the time of each rank goes", rows, "Medians of the repetitions.")


def traffic_table(dataset: Dataset) -> Table:
    groups = [group for group in dataset.groups if group.nodes > 1 or group.bytes_sent.median]
    note = "Sent: counted where ranks hand messages to the transport."
    if any(rank.interface for group in groups for run in group.runs for rank in run.finished.ranks):
        note += " The interface's own counters stand beside it; above 1.00x is what gloo adds to messages."
    rows = [_traffic(group, index) for group in groups for index in range(len(group.phases))]
    return Table.of("traffic", "Bytes and messages of each rank", rows, note)


def _traffic(group: RunGroup, index: int) -> dict[Column, Any]:
    ranks = [run.finished.ranks[index] for run in group.runs]
    sent = Spread.of(float(rank.bytes_sent) for rank in ranks)
    # What the interface of a rank's host counted; None where ranks share interfaces.
    payload, with_headers = (
        Spread.of(None if rank.interface is None else float(rank.interface[name]) for rank in ranks)
        for name in ("payload_sent", "bytes_sent")
    )
    comparable = all(run.alone_on_its_host(index) for run in group.runs)
    ratio = payload.median / sent.median if payload and sent and sent.median and comparable else None
    messages = Spread.of(float(rank.messages_sent) for rank in ranks)
    return {
        _GROUP: group.label,
        _RANK: group.phases[index].name,
        Column("bytes_sent", "sent", size, spread=True): sent,
        Column("messages_sent", "messages", show_number, spread=True): messages,
        Column("interface_payload_sent", "sent by the interface, without headers", size, spread=True): payload,
        Column("interface_bytes_sent", "with headers", size, spread=True): with_headers,
        Column("interface_ratio", "interface / transport", show_ratio): ratio,
    }


def usage_table(dataset: Dataset) -> Table:
    """Processor and memory of each rank, from its samples."""
    rows = []
    for group in dataset.groups:
        for rank in sorted({rank for run in group.runs for rank in run.samples}):
            of_runs = [run.samples[rank] for run in group.runs if rank in run.samples]
            cores = Spread.of(sum(s.cpu_seconds for s in each) / sum(s.seconds for s in each) for each in of_runs)
            memory = Spread.of(float(max(s.memory_bytes for s in each)) for each in of_runs)
            rows.append(
                {
                    _GROUP: group.label,
                    _RANK: group.runs[0].name_of(rank),
                    Column("cores", "processor, mean [cores]", "{:.2f}".format, spread=True): cores,
                    Column("memory_bytes", "memory, highest", size, spread=True): memory,
                }
            )
    return Table.of("resources", "Processor and memory of each rank", rows)


def energy_table(dataset: Dataset) -> Table:
    """Every heading says `estimated` where a number in its column is, and every row says what its own are."""
    known = [(group, energy) for group in dataset.groups if (energy := group.energy) is not None]
    mark = estimate_mark(any(energy.estimated for _, energy in known))
    sources = sorted({energy.source for _, energy in known})
    rows = []
    for group, energy in known:
        joules, product = dataset.relative_energy(group) or (None, None)
        rows.append(
            {
                _GROUP: group.label,
                Column("energy_joules", f"energy{mark}", _joules, spread=True): energy.joules,
                Column("energy_delay_product_joule_seconds", f"energy x time{mark}", _joule_seconds, spread=True): (
                    energy.joule_seconds
                ),
                Column("energy_relative_to_one_node", f"energy, one node = 1{mark}", show_ratio): joules,
                Column(
                    "energy_delay_product_relative_to_one_node", f"energy x time, one node = 1{mark}", show_ratio
                ): product,
                Column("energy_kind", "energy is", text=True): "estimated" if energy.estimated else "measured",
                Column("energy_source", "source" if len(sources) > 1 else "", text=True): energy.source,
            }
        )
    note = "Energy x time (the energy-delay product) is low for runs that are both quick and frugal."
    return Table.of("energy", f"Energy{mark}", rows, f"{note} Source: {', '.join(sources)}.")


def _joules(value: float) -> str:
    return f"{value:,.4g} J" if value < 1e4 else f"{value / 1e3:,.4g} kJ"


def _joule_seconds(value: float) -> str:
    for unit, scale in (("MJ s", 1e6), ("kJ s", 1e3)):
        if value >= scale:
            return f"{value / scale:,.4g} {unit}"
    return f"{value:,.4g} J s"


def link_table(dataset: Dataset) -> Table:
    rows = []
    for row in links_of(dataset):
        path = "bandwidth" if row.quantity == "rate" else "cluster.network.delay"
        asked, measured = (None if v is None else shown_value(path, v) for v in (row.asked, row.measured))
        what = f"rate {row.direction}".strip() if row.quantity == "rate" else "delay, one way"
        off = row.deviation if row.asked and row.measured else None
        rows.append(
            {
                _GROUP: row.group.label,
                Column("host", "host", text=True): row.host,
                Column("what", "what", text=True): what,
                Column("asked", "asked for"): asked,
                Column("measured", "measured"): measured,
                Column("asked_value", ""): row.asked,
                Column("measured_value", ""): row.measured,
                Column("deviation", "off by", lambda value: f"{100 * value:+.1f} %"): off,
                Column("emulation", "made by", text=True): row.emulation,
            }
        )
    note = "Rates are of TCP payload. Values in CSV are bits per second and seconds."
    return Table.of("links", "Links: asked for and measured", rows, note)


def _pairs(name: str, title: str, headings: tuple[str, str], rows: Sequence[tuple[str, str]], note: str = "") -> Table:
    return Table(name, title, [Column(heading, heading, text=True) for heading in headings], rows, note)


def common_table(dataset: Dataset) -> Table:
    settings = dataset.groups[0].settings
    shared = [path for path in sorted(settings) if path not in dataset.differing]
    rows = [(path, shown_value(path, settings[path]) or "none") for path in shared]
    return _pairs("settings-common", "Settings that all groups share", ("setting", "value"), rows)


def difference_table(dataset: Dataset) -> Table:
    def shown(path: str, value: object) -> str:
        return "-" if value is None else shown_value(path, value) or "none"

    paths = dataset.differing
    columns = [_GROUP, *(Column(path, path, text=True) for path in paths)]
    rows = [[group.label, *(shown(path, group.settings.get(path)) for path in paths)] for group in dataset.groups]
    return Table("settings-different", "Settings that differ", columns, rows if paths else [])


def failure_table(dataset: Dataset) -> Table:
    return _pairs("failures", "Runs that can't be counted", ("run", "reason"), dataset.found.failures)


def made_table(command: Sequence[str]) -> Table:
    rows = [
        ("command", " ".join(command)),
        ("minga", __version__),
        ("torch", _version("torch")),
        ("matplotlib", _version("matplotlib")),
        ("python", platform.python_version()),
        ("system", f"{platform.system()} {platform.release()}, {platform.machine()}"),
        ("processor cores", str(os.cpu_count())),
    ]
    note = "Of the machine that made this report; runs that were copied from elsewhere may have been made on another."
    return _pairs("made", "How this report was made", ("what", "value"), rows, note)


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"
