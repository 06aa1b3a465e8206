"""The files of a report: what is in them, that estimates are marked and that nothing hostile gets through."""

from __future__ import annotations

import csv
import json
import re
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

from helpers.made_runs import make_run, make_study, plausible_study
from minga.errors import UsageError
from minga.report.write import write_report

HOSTILE = "<script>alert(1)</script>|`=cmd`"


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A whole study with its report."""
    place = plausible_study(tmp_path_factory.mktemp("made"), ["ring", "ps:mode=sync"], ["10mbit"], 2)
    assert write_report([place], place) == place / "report.html"
    return place


class Elements(HTMLParser):
    """Tags, ids and visible text of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.ids: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.cells: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        self.ids += [value for name, value in attrs if name == "id" and value]

    def handle_data(self, data: str) -> None:
        self.cells.append(data)


def test_the_page_needs_nothing_else(study: Path) -> None:
    text = (study / "report.html").read_text()
    page = Elements(text)
    assert not {"script", "img", "link", "iframe", "object"} & set(page.tags)
    assert "default-src 'none'; style-src 'unsafe-inline'; img-src data:" in text.replace("&#x27;", "'")
    assert len(page.ids) == len(set(page.ids)), "figures must not share ids"
    links = [value or "" for name, value in page.attributes if name in ("href", "xlink:href", "src")]
    assert links and all(link.startswith("#") for link in links)
    used = {link[1:] for link in links} | set(re.findall(r"url\(#([^)]+)\)", text))
    assert used <= set(page.ids), "every reference has its target"
    assert page.tags.count("svg") == len(list((study / "figures").glob("*.svg")))
    assert all("viewBox" in match for match in re.findall(r"<svg[^>]*>", text))


def test_every_figure_of_a_whole_study_is_there(study: Path) -> None:
    assert {path.stem for path in (study / "figures").glob("*.svg")} == {
        "scaling",
        "accuracy-curves",
        "loss-curves",
        "time-to-target",
        "phases",
        "ranks",
        "traffic",
        "resources",
        "power",
        "energy",
    }
    markdown = (study / "report.md").read_text()
    linked = re.findall(r"\]\((figures/[^)]*)\)", markdown)
    assert len(linked) == 10 and all((study / each).is_file() for each in linked)


def test_the_same_runs_make_the_same_report(tmp_path: Path) -> None:
    run = make_run(tmp_path, nodes=2, bandwidth="10mbit")
    first = write_report([run], tmp_path / "out").read_bytes()
    assert write_report([run], tmp_path / "out").read_bytes() == first


def test_csv_has_medians_with_their_range_and_number(study: Path) -> None:
    with (study / "tables" / "groups.csv").open() as lines:
        rows = list(csv.DictReader(lines))
    assert len(rows) == 5
    for row in rows:
        assert float(row["seconds_min"]) <= float(row["seconds_median"]) <= float(row["seconds_max"])
        assert row["seconds_n"] == "2" and row["n"] == "2"
    assert [row["speedup_median"] == "" for row in rows] == [row["nodes"] == "1" for row in rows]


def energy_lines(text: str) -> list[str]:
    """Whatever speaks of energy, joules, watts or power."""
    return [
        line for line in text.splitlines() if re.search(r"energy|joule|\bJ\b|\[W\]|\bwatts?\b|\bpower\b", line, re.I)
    ]


def test_no_estimate_without_its_mark(study: Path) -> None:
    text = (study / "report.html").read_text()
    assert "estimated" in text
    # In figures each word is an element; headings and axes are the places that carry the mark.
    words = [cell.strip() for cell in Elements(text).cells if re.search(r"energy|power|\[J\]|\[W\]", cell, re.I)]
    words = [word for word in words if word != "Power and energy" and not word.startswith(":root")]
    unmarked = [word for word in words if "estimated" not in word and word != "energy is"]
    assert not unmarked
    for figure in ("energy", "power"):
        for line in re.findall(r">([^<>]*(?:energy|power)[^<>]*)<", (study / "figures" / f"{figure}.svg").read_text()):
            assert "estimated" in line
    markdown = (study / "report.md").read_text()
    loose = [line for line in energy_lines(markdown) if "estimated" not in line]
    assert loose == ["## Power and energy"]
    for path in (study / "tables").glob("*.csv"):
        with path.open() as lines:
            for row in csv.DictReader(lines):
                if any(re.search(r"energy|joule|watt", name) for name in row if name != "setting"):
                    assert row["energy_kind"] == "estimated"


def test_measured_energy_is_not_called_an_estimate(tmp_path: Path) -> None:
    runs = [make_run(tmp_path, nodes=nodes, estimated=False, counters=True) for nodes in (1, 2)]
    page = write_report(runs, tmp_path / "out")
    assert "power" in (tmp_path / "out" / "figures" / "power.svg").read_text()
    assert "estimated" not in (tmp_path / "out" / "tables" / "energy.csv").read_text()
    assert "Energy and energy-delay product" in page.read_text()


@pytest.mark.parametrize("where", ["workload", "strategy", "metric"])
def test_hostile_labels_stay_text(tmp_path: Path, where: str) -> None:
    runs = []
    for nodes in (1, 2):
        metrics = [
            {HOSTILE if where == "metric" else "accuracy": 0.5},
            {HOSTILE if where == "metric" else "accuracy": 0.9},
        ]
        run = make_run(tmp_path, nodes=nodes, epochs=2, metrics=metrics, samples_every=None)
        text = (run / "experiment.toml").read_text()
        if where == "workload":
            text = text.replace('workload = "digits"', f"workload = '{HOSTILE}{nodes}'")
        if where == "strategy" and nodes == 2:
            text = text.replace('strategy = "native"', f"strategy = '/x/my.py:Own{HOSTILE}'")
        (run / "experiment.toml").write_text(text)
        runs.append(run)
    page = write_report(runs, tmp_path / "out")
    assert "script" not in Elements(page.read_text()).tags
    assert "&lt;script&gt;" in page.read_text(), "it is shown, as text"
    assert "<script" not in (tmp_path / "out" / "report.md").read_text()
    for figure in (tmp_path / "out" / "figures").glob("*.svg"):
        assert "<script" not in figure.read_text()
    assert all(path.resolve().is_relative_to(tmp_path) for path in (tmp_path / "out").rglob("*"))


def test_formulas_in_labels_are_text_for_spreadsheets(tmp_path: Path) -> None:
    runs = [make_run(tmp_path) for _ in range(2)]
    for number, run in enumerate(runs):
        text = (run / "experiment.toml").read_text()
        (run / "experiment.toml").write_text(text.replace('"digits"', f"'=HYPERLINK({number})'"))
    write_report(runs, tmp_path / "out")
    with (tmp_path / "out" / "tables" / "groups.csv").open() as lines:
        assert [row["group"] for row in csv.DictReader(lines)] == ["'=HYPERLINK(0)", "'=HYPERLINK(1)"]


def test_a_workload_without_evaluations_shows_the_loss_of_training(tmp_path: Path) -> None:
    write_report([make_run(tmp_path, metrics=[])], tmp_path / "out")
    assert (tmp_path / "out" / "figures" / "training-loss-curves.svg").is_file()
    assert not (tmp_path / "out" / "tables" / "time-to-target.csv").exists()


def test_sections_without_content_are_left_out_and_old_files_removed(tmp_path: Path) -> None:
    write_report([make_run(tmp_path, nodes=2, bandwidth="10mbit"), make_run(tmp_path)], tmp_path / "out")
    assert (tmp_path / "out" / "figures" / "power.svg").is_file()
    page = write_report([make_run(tmp_path, samples_every=None)], tmp_path / "out")
    text = page.read_text()
    for title in ("Power and energy", "Links", "Bytes and messages", "Processor, memory"):
        assert title not in text
    assert not (tmp_path / "out" / "figures" / "power.svg").exists()
    assert not (tmp_path / "out" / "tables" / "links.csv").exists()


def test_simulated_runs_are_dashed_and_say_so(tmp_path: Path) -> None:
    runs = [
        make_run(tmp_path, nodes=nodes, simulated=simulated, samples_every=None)
        for nodes in (1, 2)
        for simulated in (False, True)
    ]
    page = write_report(runs, tmp_path / "out")
    assert "2 nodes, simulated" in page.read_text()
    assert "stroke-dasharray" in (tmp_path / "out" / "figures" / "scaling.svg").read_text()


def test_a_strategy_in_a_file_that_is_gone_is_no_problem_and_is_not_run(tmp_path: Path) -> None:
    run = make_run(tmp_path, nodes=2)
    (tmp_path / "mine.py").write_text("raise SystemExit('a report must not run this')")
    text = (run / "experiment.toml").read_text()
    text = text.replace('strategy = "native"', f'strategy = "{tmp_path}/mine.py:Mine:period=8"')
    (run / "experiment.toml").write_text(text)
    assert "mine.py:Mine:period=8" in write_report([run], tmp_path / "out").read_text()


def test_odd_labels_can_be_drawn(tmp_path: Path) -> None:
    """Very long, with a dollar sign (mathematics for matplotlib), beginning with an underscore (hidden for it)."""
    names = ("_hidden", "$x^2$ costs 1$", "long " * 60, "数字\\u0001")
    runs = [make_run(tmp_path, nodes=2, samples_every=None) for _ in names]
    for run, name in zip(runs, names, strict=True):
        text = (run / "experiment.toml").read_text()
        (run / "experiment.toml").write_text(text.replace('"digits"', f'"{name}"'))
    page = write_report(runs, tmp_path / "out")
    assert ("long " * 60).strip() in page.read_text(), "tables have it whole"
    assert "$x^2$ costs 1$" in (tmp_path / "out" / "figures" / "phases.svg").read_text()


def test_malformed_events_are_noted(tmp_path: Path) -> None:
    run = make_run(tmp_path, nodes=2)
    for rank in (0, 1):
        path = run / "events" / f"rank-{rank}.jsonl"
        lines = path.read_text().splitlines()
        lines[3] = lines[3][:40]
        lines.insert(5, '{"event": "evaluated", "time": 101}')
        path.write_text("\n".join(lines) + "\n" + '{"event": "st')
    assert (
        "4 malformed events passed over (2 in rank-0.jsonl, 2 in rank-1.jsonl): numbers may be incomplete."
        in write_report([run], tmp_path / "out").read_text()
    )


def test_a_damaged_description_of_the_network_is_told(tmp_path: Path) -> None:
    run = make_run(tmp_path, nodes=2, bandwidth="10mbit")
    (run / "network.json").write_text("{")
    with pytest.raises(UsageError, match=r"its network\.json is damaged"):
        write_report([run], tmp_path / "out")


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (None, "there is no "),
        ({}, "is empty"),
        ({"x.txt": ""}, "is no run"),
        ({"experiment.toml": "workload = ["}, "this is no TOML"),
        ({"experiment.toml": "workload = 3"}, "workload"),
        ({"experiment.toml": 'workload = "digits"'}, "it has no events"),
        ({"study.toml": ""}, "has no results yet"),
        ({"results.jsonl": "damaged\n"}, "has no results yet"),
        ({"inner/experiment.toml": 'workload = "digits"'}, "is no run, but has 1 in it: minga report "),
    ],
)
def test_what_is_no_run_is_told(tmp_path: Path, content: dict[str, str] | None, expected: str) -> None:
    place = tmp_path / "given"
    for name, text in (content or {}).items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text(text)
    if content == {}:
        place.mkdir()
    with pytest.raises(UsageError, match=re.escape(expected)):
        write_report([place], tmp_path / "out")


@pytest.mark.parametrize("state", ["failed", "unfinished"])
def test_runs_that_did_not_end_well_are_no_report(tmp_path: Path, state: str) -> None:
    with pytest.raises(UsageError, match="there is no finished run to report on"):
        write_report([make_run(tmp_path, nodes=2, state=state)], tmp_path / "out")


def test_a_file_is_no_run_and_a_study_stands_alone(tmp_path: Path, study: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="is a file"):
        write_report([tmp_path / "file"], tmp_path / "out")
    with pytest.raises(UsageError, match="is a study: report on it alone"):
        write_report([study, make_run(tmp_path)], tmp_path / "out")
    with pytest.raises(UsageError, match="can't write the report"):
        write_report([make_run(tmp_path)], tmp_path / "file")


def test_without_matplotlib_the_remedy_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(UsageError, match=re.escape("pip install 'minga[report]'")):
        write_report([make_run(tmp_path)], tmp_path / "out")


def test_a_cell_that_was_tried_again_counts_once(tmp_path: Path) -> None:
    place = make_study(tmp_path, [({"cluster.nodes": 1}, [make_run(tmp_path / "runs", samples_every=None)])])
    lines = (place / "results.jsonl").read_text().splitlines()
    failed = {**json.loads(lines[0]), "state": "failed", "error": "first try", "run": None}
    (place / "results.jsonl").write_text("\n".join([json.dumps(failed), *lines]) + "\n")
    assert "first try" not in write_report([place], place).read_text()
