"""The tables of a report: what came out, what it took, under which circumstances.

One without rows is left out of the report."""

from __future__ import annotations

import importlib.metadata
import math
import os
import platform
from collections.abc import Sequence
from functools import partial

from minga._version import __version__
from minga.report.dataset.groups import Dataset
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
    metrics = dataset.metrics()[:_METRICS]
    columns = [
        _GROUP,
        Column("nodes", "nodes"),
        Column("n", "n"),
        Column("seconds", "training time", show_seconds, spread=True),
        Column("samples_per_second", "samples/s", show_number, spread=True),
        Column("speedup", "speedup", show_ratio, spread=True),
        Column("efficiency", "efficiency", show_percent, spread=True),
        *(_metric_column(name, spread=True) for name in metrics),
        Column("exchange_share", "exchange", show_percent),
        Column("waiting_share", "of it waiting", show_percent),
    ]
    rows = []
    for group in dataset.groups:
        speedup = dataset.speedup(group)
        exchange = group.share("exchange", "wait") if group.nodes > 1 else None
        rows.append(
            [
                group.label,
                group.nodes,
                group.n,
                group.seconds,
                group.samples_per_second,
                speedup,
                speedup.divided_by(group.nodes) if speedup else None,
                *(group.metric(name) for name in metrics),
                exchange,
                group.share("wait") / exchange if exchange else None,
            ]
        )
    note = "One run each: differences of a few percent are noise."
    if dataset.repeated:
        note = "Medians, each with the lowest and the highest repetition; n is the number of repetitions."
    return Table("groups", "All groups", columns, rows, note)


def run_table(dataset: Dataset) -> Table:
    metrics = dataset.metrics()[:_METRICS]
    columns = [
        Column("run", "run", text=True),
        _GROUP,
        Column("seed", "seed"),
        Column("seconds", "training time", show_seconds),
        Column("steps", "steps", show_number),
        Column("epochs", "epochs", show_number),
        *(_metric_column(name, spread=False) for name in metrics),
        Column("bytes_sent", "sent", size),
        Column("simulated", "simulated", text=True),
    ]
    rows = [
        [
            run.directory.name,
            group.label,
            run.seed,
            run.finished.seconds,
            run.finished.steps,
            run.finished.epochs,
            *(run.finished.metrics.get(name) for name in metrics),
            run.finished.bytes_sent,
            "simulated" if run.simulated else None,
        ]
        for group in dataset.groups
        for run in group.runs
    ]
    return Table("runs", "All runs", columns, rows)


def target_table(dataset: Dataset, target: Target) -> Table:
    columns = [
        _GROUP,
        Column("target", "", text=True),
        Column("seconds_to_target", f"time to {target.text}", show_seconds, spread=True),
        Column("reached", "runs that reach it", text=True),
    ]
    rows = []
    for group in dataset.groups:
        spread, count = reached(group, target)
        rows.append([group.label, target.text, spread, f"{count} of {group.n}"])
    return Table("time-to-target", f"Time to {target.text}", columns, rows, f"The target is {target.reason}.")


def curve_tables(dataset: Dataset) -> list[Table]:
    """What the curves are drawn from; as CSV only."""
    tables = []
    for metric in dataset.metrics() or ["training loss"]:
        rows = [
            [group.label, *point]
            for group in dataset.groups
            for point in curve_of(group, metric)
            if math.isfinite(point.seconds)
        ]
        columns = [
            _GROUP,
            Column("epoch", "epoch"),
            Column("seconds", "training time"),
            Column(metric.replace(" ", "_"), metric, spread=True),
        ]
        tables.append(Table(f"{file_name(metric)}-curves", metric, columns, rows, only_csv=True))
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
    names = [*(name for name in PHASES if name in present), *sorted(present - set(PHASES))]
    headings = {name: words for name, (words, _) in PHASES.items()}
    columns = [
        _GROUP,
        _RANK,
        Column("role", "role", text=True),
        *(Column(f"{name}_seconds", headings.get(name, name), show_seconds) for name in names),
        Column("waiting_share", "waiting, share", show_percent),
    ]
    rows = [
        [
            group.label,
            rank.name,
            rank.role,
            *(rank.seconds.get(name) for name in names),
            rank.seconds["wait"] / rank.total if rank.total else None,
        ]
        for group in dataset.groups
        for rank in group.phases
    ]
    return Table("phases", "Where the time of each rank goes", columns, rows, "Medians of the repetitions.")


def traffic_table(dataset: Dataset) -> Table:
    columns = [
        _GROUP,
        _RANK,
        Column("bytes_sent", "sent", size, spread=True),
        Column("messages_sent", "messages", show_number, spread=True),
        Column("interface_payload_sent", "sent by the interface, without headers", size, spread=True),
        Column("interface_bytes_sent", "with headers", size, spread=True),
        Column("interface_ratio", "interface / transport", show_ratio),
    ]
    rows = []
    for group in dataset.groups:
        if group.nodes == 1 and not group.bytes_sent.median:
            continue
        for index, rank in enumerate(group.phases):
            ranks = [run.finished.ranks[index] for run in group.runs]
            sent = Spread.of(float(each.bytes_sent) for each in ranks)
            messages = Spread.of(float(each.messages_sent) for each in ranks)
            # What the interface of a rank's host counted; None where ranks share interfaces.
            payload, with_headers = (
                Spread.of(None if each.interface is None else float(each.interface[name]) for each in ranks)
                for name in ("payload_sent", "bytes_sent")
            )
            comparable = all(run.alone_on_its_host(index) for run in group.runs)
            ratio = payload.median / sent.median if payload and sent and sent.median and comparable else None
            rows.append([group.label, rank.name, sent, messages, payload, with_headers, ratio])
    note = "Sent: counted where ranks hand messages to the transport."
    if any(row[4] is not None for row in rows):
        note += " The interface's own counters stand beside it; above 1.00x is what gloo adds to messages."
    return Table("traffic", "Bytes and messages of each rank", columns, rows, note)


def usage_table(dataset: Dataset) -> Table:
    """Processor and memory of each rank, from its samples."""
    columns = [
        _GROUP,
        _RANK,
        Column("cores", "processor, mean [cores]", lambda value: f"{value:.2f}", spread=True),
        Column("memory_bytes", "memory, highest", size, spread=True),
    ]
    rows = []
    for group in dataset.groups:
        for rank in sorted({rank for run in group.runs for rank in run.samples}):
            of_runs = [run.samples[rank] for run in group.runs if rank in run.samples]
            cores = Spread.of(sum(s.cpu_seconds for s in each) / sum(s.seconds for s in each) for each in of_runs)
            memory = Spread.of(float(max(s.memory_bytes for s in each)) for each in of_runs)
            rows.append([group.label, group.runs[0].name_of(rank), cores, memory])
    return Table("resources", "Processor and memory of each rank", columns, rows)


def energy_table(dataset: Dataset) -> Table:
    """Every heading says `estimated` where a number in its column is, and every row says what its own are."""
    rows = []
    for group in dataset.groups:
        if (energy := group.energy) is not None:
            kind = "estimated" if energy.estimated else "measured"
            pair = dataset.relative_energy(group) or (None, None)
            rows.append([group.label, energy.joules, energy.joule_seconds, *pair, kind, energy.source])
    mark = estimate_mark(any(group.energy.estimated for group in dataset.groups if group.energy))
    sources = sorted({group.energy.source for group in dataset.groups if group.energy})
    columns = [
        _GROUP,
        Column("energy_joules", f"energy{mark}", _joules, spread=True),
        Column("energy_delay_product_joule_seconds", f"energy x time{mark}", _joule_seconds, spread=True),
        Column("energy_relative_to_one_node", f"energy, one node = 1{mark}", show_ratio),
        Column("energy_delay_product_relative_to_one_node", f"energy x time, one node = 1{mark}", show_ratio),
        Column("energy_kind", "energy is", text=True),
        Column("energy_source", "source" if len(sources) > 1 else "", text=True),
    ]
    note = "Energy x time (the energy-delay product) is low for runs that are both quick and frugal."
    return Table("energy", f"Energy{mark}", columns, rows, f"{note} Source: {', '.join(sources)}.")


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
        off = row.deviation if row.asked and row.measured else None
        path = "bandwidth" if row.quantity == "rate" else "cluster.network.delay"
        asked, measured = (None if v is None else shown_value(path, v) for v in (row.asked, row.measured))
        what = f"rate {row.direction}".strip() if row.quantity == "rate" else "delay, one way"
        rows.append([row.group.label, row.host, what, asked, measured, row.asked, row.measured, off, row.emulation])
    columns = [
        _GROUP,
        Column("host", "host", text=True),
        Column("what", "what", text=True),
        Column("asked", "asked for"),
        Column("measured", "measured"),
        Column("asked_value", ""),
        Column("measured_value", ""),
        Column("deviation", "off by", lambda value: f"{100 * value:+.1f} %"),
        Column("emulation", "made by", text=True),
    ]
    note = "Rates are of TCP payload. Values in CSV are bits per second and seconds."
    return Table("links", "Links: asked for and measured", columns, rows, note)


def common_table(dataset: Dataset) -> Table:
    settings = dataset.groups[0].settings
    shared = [path for path in sorted(settings) if path not in dataset.differing]
    rows = [[path, shown_value(path, settings[path]) or "none"] for path in shared]
    columns = [Column("setting", "setting", text=True), Column("value", "value", text=True)]
    return Table("settings-common", "Settings that all groups share", columns, rows)


def difference_table(dataset: Dataset) -> Table:
    def shown(path: str, value: object) -> str:
        return "-" if value is None else shown_value(path, value) or "none"

    paths = dataset.differing
    columns = [_GROUP, *(Column(path, path, text=True) for path in paths)]
    rows = [[group.label, *(shown(path, group.settings.get(path)) for path in paths)] for group in dataset.groups]
    return Table("settings-different", "Settings that differ", columns, rows if paths else [])


def failure_table(dataset: Dataset) -> Table:
    columns = [Column("run", "run", text=True), Column("reason", "reason", text=True)]
    return Table("failures", "Runs that can't be counted", columns, dataset.found.failures)


def made_table(command: Sequence[str]) -> Table:
    rows = [
        ["command", " ".join(command)],
        ["minga", __version__],
        ["torch", _version("torch")],
        ["matplotlib", _version("matplotlib")],
        ["python", platform.python_version()],
        ["system", f"{platform.system()} {platform.release()}, {platform.machine()}"],
        ["processor cores", str(os.cpu_count())],
    ]
    columns = [Column("what", "what", text=True), Column("value", "value", text=True)]
    note = "Of the machine that made this report; runs that were copied from elsewhere may have been made on another."
    return Table("made", "How this report was made", columns, rows, note)


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"
