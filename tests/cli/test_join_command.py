"""`minga join` and `minga train --listen` as commands: what they refuse before anything is started."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

Minga = Callable[..., Any]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["join", "10.0.0.1"], "should be ADDRESS:PORT"),
        (["join", "127.0.0.1:1"], "MINGA_TOKEN"),
        (["join", "127.0.0.1:1", "--token", "short"], "can be guessed"),
        (["train", "digits", "--expect", "3"], "--listen"),
        (["train", "digits", "--tls", "x"], "--listen"),
        (["train", "digits", "--listen", "0.0.0.0", "--expect", "3"], "stands for all addresses"),
        (["train", "digits", "--listen", "127.0.0.1", "--expect", "1"], "at least 2 nodes"),
        (["train", "digits", "--listen", "127.0.0.1", "--expect", "2", "--bandwidth", "1mbit"], "lab"),
        (["train", "digits", "--nodes", "2", "--transport", "gloo", "--min-nodes", "2"], "--transport tcp, not gloo"),
        (["train", "digits", "--nodes", "2", "--transport", "carrier-pigeons"], "known: gloo, tcp"),
        (["train", "digits", "--nodes", "2", "--heartbeat-timeout", "soon"], "'soon'"),
        (["train", "digits", "--nodes", "2", "--heartbeat-timeout", "1ms"], "0.5 to 3600"),
        (["train", "digits", "--interface", "eth99", "--expect", "2"], "unknown interface"),
        (["train", "digits", "--listen", "127.0.0.1", "--expect", "2", "--min-nodes", "3"], "min_nodes"),
        (["train", "digits", "--listen", "127.0.0.1", "--expect", "2", "--tls", "nowhere"], "minga cert"),
    ],
)
def test_mistakes_in_joining(minga: Minga, monkeypatch: pytest.MonkeyPatch, words: list[str], told: str) -> None:
    monkeypatch.delenv("MINGA_TOKEN", raising=False)
    done = minga(*words)
    assert done.returncode == 2, done.stderr
    assert told in done.stderr
    assert "Traceback" not in done.stderr


def test_nobody_answers_is_exit_code_1(minga: Minga) -> None:
    done = minga("join", "127.0.0.1:1", "--token", "t" * 32, "--wait", "0s")
    assert done.returncode == 1
    assert "nobody listens there" in done.stderr
