"""`minga cert` as people and programs use it."""

from __future__ import annotations

import builtins
import json
from pathlib import Path
from typing import Any

import pytest

from minga.net.tls import load_tls


def test_a_directory_for_each_node(minga: Any, tmp_path: Path) -> None:
    done = minga("cert", "certificates", "--for", "127.0.0.1", "--for", "node-1.local", "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["nodes"] == {name: f"certificates/{name}" for name in ("127.0.0.1", "node-1.local")}
    for directory in told["nodes"].values():
        load_tls(directory)
    done = minga("cert", "certificates", "--for", "10.0.0.3", "--days", "7")
    assert "copy this directory to the node 10.0.0.3" in done.stdout
    assert "authority.key to yourself" in done.stdout


@pytest.mark.parametrize("wrong", ["0.0.0.0", "no such host!"])
def test_addresses_that_can_not_be(minga: Any, wrong: str) -> None:
    done = minga("cert", "c", "--for", wrong)
    assert done.returncode == 2
    assert wrong in done.stderr
    assert not Path("c").exists()


def test_without_the_library_the_remedy_is_told(minga: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def missing(name: str, *arguments: Any, **options: Any) -> Any:
        if name.startswith("cryptography"):
            raise ImportError(name)
        return real(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", missing)
    done = minga("cert", "c", "--for", "127.0.0.1")
    assert done.returncode == 1
    assert "pip install 'minga[tls]'" in done.stderr
