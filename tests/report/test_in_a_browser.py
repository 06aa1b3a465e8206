"""The report in a real browser, from disk: no complaint in its console, no request that leaves the machine."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from helpers.made_runs import make_run
from minga.report.write import write_report

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(BROWSER is None, reason="neither chromium nor google-chrome is installed")


def opened(page: Path, place: Path) -> tuple[str, list[str], list[str]]:
    """The page's elements after loading, what the console said, addresses that it asked for."""
    assert BROWSER is not None
    log = place / "net.json"
    done = subprocess.run(
        [
            BROWSER,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--disable-background-networking",
            "--disable-component-update",
            "--no-first-run",
            "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
            "--enable-logging=stderr",
            "--v=0",
            f"--user-data-dir={place / 'profile'}",
            f"--log-net-log={log}",
            "--dump-dom",
            page.as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    console = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    return done.stdout, console, _addresses(log)


def _addresses(log: Path) -> list[str]:
    text = log.read_text()
    try:
        events = json.loads(text)["events"]
    except ValueError:  # a browser that is ended early leaves the list open
        events = json.loads(text.rstrip().rstrip(",") + "]}")["events"]
    asked = [event.get("params", {}) for event in events]
    # The browser asks its maker about the time, updates and dictionaries; such requests have no origin.
    of_pages = [each for each in asked if each.get("initiator", "not an origin") != "not an origin"]
    return [each["url"] for each in of_pages if re.match(r"(https?|wss?|ftp):", each["url"])]


def test_it_opens_without_errors_and_asks_nobody(tmp_path: Path) -> None:
    runs = [make_run(tmp_path, nodes=nodes, bandwidth="10mbit", own_seconds=12 / nodes) for nodes in (1, 2, 4)]
    elements, console, addresses = opened(write_report(runs, tmp_path / "out"), tmp_path)
    assert "What the figures show" in elements and "<svg" in elements
    assert not console
    assert not addresses


def test_this_test_would_see_a_page_that_does(tmp_path: Path) -> None:
    page = tmp_path / "bad.html"
    page.write_text("<script>console.error('oh')</script><img src='http://127.0.0.1:9/picture.png'>")
    _, console, addresses = opened(page, tmp_path)
    assert any("oh" in line for line in console)
    assert "http://127.0.0.1:9/picture.png" in addresses
