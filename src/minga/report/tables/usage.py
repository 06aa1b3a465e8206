"""What it took: phases of ranks, bytes, energy, links."""

from __future__ import annotations

from collections.abc import Callable

from minga.report.dataset.groups import Dataset, RunGroup
from minga.report.dataset.links import links_of
from minga.report.dataset.reading import Run
from minga.report.dataset.settings import shown_value
from minga.report.dataset.statistics import Spread
from minga.report.figures.phases import PHASES
from minga.report.tables.table import (
    Column,
    Table,
    show_bytes,
    show_number,
    show_percent,
    show_ratio,
    show_seconds,
)

__all__ = ["energy_table", "link_table", "phase_table", "traffic_table", "usage_table"]


def phase_table(dataset: Dataset) -> Table:
    present = {name for group in dataset.groups for rank in group.phases for name in rank.seconds}
    names = [*(name for name in PHASES if name in present), *sorted(present - set(PHASES))]
    headings = {name: words for name, (words, _) in PHASES.items()}
    columns = [
        Column("group", "group", text=True),
        Column("rank", "rank", text=True),
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


def _interface(group: RunGroup, rank: int, name: str) -> Spread | None:
    """What the interface of a rank's host counted; None where ranks share interfaces."""

    def counted(run: Run) -> float | None:
        interface = run.finished.ranks[rank].interface
        return None if interface is None else float(interface[name])

    return group.spread(counted)


def traffic_table(dataset: Dataset) -> Table | None:
    columns = [
        Column("group", "group", text=True),
        Column("rank", "rank", text=True),
        Column("bytes_sent", "sent", show_bytes, spread=True),
        Column("messages_sent", "messages", show_number, spread=True),
        Column("interface_payload_sent", "sent by the interface, without headers", show_bytes, spread=True),
        Column("interface_bytes_sent", "with headers", show_bytes, spread=True),
        Column("interface_ratio", "interface / transport", show_ratio),
    ]
    rows = []
    for group in dataset.groups:
        if group.nodes == 1 and not group.bytes_sent.median:
            continue
        for index, rank in enumerate(group.phases):
            sent = group.spread(_of_rank(index, "bytes_sent"))
            messages = group.spread(_of_rank(index, "messages_sent"))
            payload = _interface(group, index, "payload_sent")
            comparable = all(run.alone_on_its_host(index) for run in group.runs)
            ratio = payload.median / sent.median if payload and sent and sent.median and comparable else None
            with_headers = _interface(group, index, "bytes_sent")
            rows.append([group.label, rank.name, sent, messages, payload, with_headers, ratio])
    if not rows:
        return None
    note = "Sent: counted where ranks hand messages to the transport."
    if any(row[4] is not None for row in rows):
        note += " The interface's own counters stand beside it; above 1.00x is what gloo adds to messages."
    return Table("traffic", "Bytes and messages of each rank", columns, rows, note)


def _of_rank(index: int, name: str) -> Callable[[Run], float | None]:
    return lambda run: float(getattr(run.finished.ranks[index], name))


def usage_table(dataset: Dataset) -> Table | None:
    """Processor and memory of each rank, from its samples."""
    columns = [
        Column("group", "group", text=True),
        Column("rank", "rank", text=True),
        Column("cores", "processor, mean [cores]", lambda value: f"{value:.2f}", spread=True),
        Column("memory_bytes", "memory, highest", show_bytes, spread=True),
    ]
    rows = []
    for group in dataset.groups:
        for rank in sorted({rank for run in group.runs for rank in run.samples}):
            cores = group.spread(lambda run, rank=rank: _cores(run, rank))  # type: ignore[misc]
            memory = group.spread(lambda run, rank=rank: _memory(run, rank))  # type: ignore[misc]
            rows.append([group.label, group.runs[0].name_of(rank), cores, memory])
    return Table("resources", "Processor and memory of each rank", columns, rows) if rows else None


def _cores(run: Run, rank: int) -> float | None:
    samples = run.samples.get(rank)
    return sum(s.cpu_seconds for s in samples) / sum(s.seconds for s in samples) if samples else None


def _memory(run: Run, rank: int) -> float | None:
    return max((sample.memory_bytes for sample in run.samples.get(rank, [])), default=None)


def energy_table(dataset: Dataset) -> Table | None:
    """Every heading says `estimated` where a number in its column is, and every row says what its own are."""
    known = [(group, group.energy) for group in dataset.groups if group.energy is not None]
    if not known:
        return None
    mark = ", estimated" if any(energy.estimated for _, energy in known if energy) else ""
    sources = {energy.source for _, energy in known if energy}
    rows = []
    for group, energy in known:
        assert energy is not None
        kind = "estimated" if energy.estimated else "measured"
        pair = dataset.relative_energy(group) or (None, None)
        rows.append([group.label, energy.joules, energy.joule_seconds, *pair, kind, energy.source])
    columns = [
        Column("group", "group", text=True),
        Column("energy_joules", f"energy{mark}", _joules, spread=True),
        Column("energy_delay_product_joule_seconds", f"energy x time{mark}", _joule_seconds, spread=True),
        Column("energy_relative_to_one_node", f"energy, one node = 1{mark}", show_ratio),
        Column("energy_delay_product_relative_to_one_node", f"energy x time, one node = 1{mark}", show_ratio),
        Column("energy_kind", "energy is", text=True),
        Column("energy_source", "source" if len(sources) > 1 else "", text=True),
    ]
    note = "Energy x time (the energy-delay product) is low for runs that are both quick and frugal."
    note += f" Source: {', '.join(sorted(sources))}."
    return Table("energy", f"Energy{mark}", columns, rows, note)


def _joules(value: float) -> str:
    return f"{value:,.4g} J" if value < 1e4 else f"{value / 1e3:,.4g} kJ"


def _joule_seconds(value: float) -> str:
    for unit, size in (("MJ s", 1e6), ("kJ s", 1e3)):
        if value >= size:
            return f"{value / size:,.4g} {unit}"
    return f"{value:,.4g} J s"


def link_table(dataset: Dataset) -> Table | None:
    rows = []
    for row in links_of(dataset):
        off = row.deviation if row.asked and row.measured else None
        path = "bandwidth" if row.quantity == "rate" else "cluster.network.delay"
        asked, measured = (None if v is None else shown_value(path, v) for v in (row.asked, row.measured))
        what = f"rate {row.direction}".strip() if row.quantity == "rate" else "delay, one way"
        rows.append([row.group.label, row.host, what, asked, measured, row.asked, row.measured, off, row.emulation])
    if not rows:
        return None
    columns = [
        Column("group", "group", text=True),
        Column("host", "host", text=True),
        Column("what", "what", text=True),
        Column("asked", "asked for"),
        Column("measured", "measured"),
        Column("asked_value", "", lambda _: ""),
        Column("measured_value", "", lambda _: ""),
        Column("deviation", "off by", lambda value: f"{100 * value:+.1f} %"),
        Column("emulation", "made by", text=True),
    ]
    note = "Rates are of TCP payload. Values in CSV are bits per second and seconds."
    return Table("links", "Links: asked for and measured", columns, rows, note)
