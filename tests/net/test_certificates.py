"""A small authority in a directory: what `minga cert` makes, and what can't be loaded."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from minga.errors import ConfigError
from minga.net.certificates import make_certificates
from minga.net.tls import load_tls


def test_keys_are_for_their_owner_and_authorities_are_kept(tmp_path: Path) -> None:
    make_certificates(tmp_path / "c", ["10.0.0.1"])
    for key in (tmp_path / "c" / "authority.key", tmp_path / "c" / "10.0.0.1" / "node.key"):
        assert stat.S_IMODE(key.stat().st_mode) == 0o600
    authority = (tmp_path / "c" / "authority.pem").read_bytes()
    (added,) = make_certificates(tmp_path / "c", ["node.example.org"], days=1)
    assert (added / "authority.pem").read_bytes() == authority
    load_tls(added)
    with pytest.raises(ConfigError, match="is there already; remove it"):
        make_certificates(tmp_path / "c", ["10.0.0.1"])
    for wrong in ("0.0.0.0", "a b", "../up", ""):
        with pytest.raises(ConfigError):
            make_certificates(tmp_path / "c", [wrong])
    with pytest.raises(ConfigError, match="days"):
        make_certificates(tmp_path / "c", ["10.0.0.2"], days=0)


def test_directories_that_have_no_certificates(tmp_path: Path) -> None:
    make_certificates(tmp_path / "made", ["10.0.0.1"])
    with pytest.raises(ConfigError, match=r"has no node\.pem; give the directory of one node"):
        load_tls(tmp_path / "made")  # the authority itself, which is no node
    for name in ("authority.pem", "node.pem", "node.key"):
        (tmp_path / name).write_text("nonsense")
    with pytest.raises(ConfigError, match="can't be used"):
        load_tls(tmp_path)
