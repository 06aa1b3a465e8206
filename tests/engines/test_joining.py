"""Runs that other machines join, leave and are refused by; with real processes."""

from __future__ import annotations

import dataclasses
import os
import signal
import socket
import time
from pathlib import Path

import psutil
import pytest

from helpers.several_machines import (
    Host,
    Part,
    digests,
    events,
    last_json,
    listening_addresses,
    step_of,
    until,
    write_workload,
)
from helpers.warm_start import own_processes
from minga import Cluster, Experiment, Training, run
from minga.engines.joining import join_run
from minga.errors import ConfigError, PeerTimeout, PortBusy, Refused, RunStopped
from minga.launch.listening import Listening, find_token, join_command, parse_address, prepared, reach
from minga.runs.directory import save_model
from minga.runs.workload import load_workload


def test_two_machines_train_one_model_and_listen_nowhere_else(tmp_path: Path) -> None:
    host = Host(tmp_path / "first")
    joined = host.joined_by(tmp_path / "second")
    until(lambda: step_of(tmp_path / "second") > 5)
    found = listening_addresses(psutil.Process())
    assert found
    assert {address.rpartition(":")[0] for address in found} <= {"127.0.0.1", "127.0.0.2"}
    assert sum(address.startswith("127.0.0.2:") for address in found) == 2  # coordinator and one data door
    ours, theirs = host.end(), joined.end()
    assert (ours.steps, theirs.steps) == (80, 80)
    assert len(digests(host.runs, tmp_path / "second")) == 1
    directory = Path(theirs.run)
    assert (directory / "experiment.toml").is_file()
    assert list((directory / "logs").glob("rank-1.log"))
    assert [path.name for path in (directory / "events").glob("rank-*.jsonl")] == ["rank-1.jsonl"]
    # What one machine writes is a whole checkpoint, though the other has no disk in common with it.
    assert events(host.runs, "checkpoint")
    assert not events(tmp_path / "second", "checkpoint")


@pytest.mark.parametrize(("transport", "doors"), [("tcp", 3), ("gloo", 2)])
def test_without_listen_nothing_is_reachable_from_outside(tmp_path: Path, transport: str, doors: int) -> None:
    file = write_workload(tmp_path)
    experiment = Experiment(
        workload=f"{file}:workload",
        strategy="ring",  # type: ignore[arg-type]
        cluster=Cluster(nodes=2, transport=transport),  # type: ignore[arg-type]
        training=Training(steps=60, total_batch=12),
        runs=str(tmp_path / "runs"),
    )
    training = Part(lambda: run(experiment))
    until(lambda: step_of(tmp_path / "runs") > 5)
    found = listening_addresses(psutil.Process())
    training.end()
    assert len(found) >= doors  # of the ranks, and with tcp the coordinator's
    assert all(address.startswith("127.0.0.1:") for address in found)


@pytest.mark.slow
def test_a_node_joins_in_mid_run_and_leaves_again_while_others_go_on(tmp_path: Path) -> None:
    save_model(tmp_path, load_workload(f"{write_workload(tmp_path)}:workload", None).model())
    host = Host(tmp_path / "first", expect=2, here=2, steps=500, start_from=tmp_path)
    until(lambda: step_of(host.runs) > 5)
    (tmp_path / "model.safetensors").unlink()  # another machine has not got what the run began with
    joined = host.joined_by(tmp_path / "second")
    until(lambda: step_of(tmp_path / "second") > 20)
    assert {event["ranks"] for event in events(host.runs, "recovered")} == {3}
    os.kill(events(tmp_path / "second", "started")[0]["pid"], signal.SIGTERM)
    began = time.monotonic()
    with pytest.raises(RunStopped, match="the others go on"):
        joined.end()
    assert time.monotonic() - began < 5
    assert host.end().steps == 500
    changes = events(host.runs, "recovered")
    assert [event["ranks"] for event in changes if event["rank"] == 0] == [3, 2]
    assert "has left" in changes[-1]["reason"]
    assert changes[-1]["seconds"] < 2
    assert len(digests(host.runs)) == 1


@pytest.mark.slow
def test_ctrl_c_is_130_and_a_result_is_json(tmp_path: Path) -> None:
    host = Host(tmp_path / "first", expect=3, min_nodes=1, steps=120)
    first, second = host.command(tmp_path / "second", "--json"), host.command(tmp_path / "third", "--name", "piura")
    try:
        until(lambda: step_of(tmp_path / "third") > 5)
        second.send_signal(signal.SIGINT)
        assert second.wait(20) == 130
        told, words = first.communicate(timeout=60)
        assert first.returncode == 0, words
        assert last_json(told)["steps"] == 120
        assert host.end().steps == 120
    finally:
        for each in (first, second):
            each.kill()
            each.communicate()


@pytest.mark.slow
def test_the_first_machines_own_rank_may_be_killed(tmp_path: Path) -> None:
    host = Host(tmp_path / "first", steps=120)
    joined = host.joined_by(tmp_path / "second")
    until(lambda: step_of(tmp_path / "second") > 20)
    os.kill(events(host.runs, "started")[0]["pid"], signal.SIGKILL)
    theirs = joined.end()
    assert theirs.steps == 120
    host.end()  # its coordinator has served the other to the end
    assert Path(theirs.run, "model.safetensors").is_file()


def test_the_coordinator_comes_back_where_no_rank_is_left(tmp_path: Path) -> None:
    host = Host(tmp_path / "first", expect=3, steps=150)
    joined = [host.joined_by(tmp_path / name) for name in ("second", "third")]
    until(lambda: step_of(tmp_path / "second") > 20)
    os.kill(events(host.runs, "started")[0]["pid"], signal.SIGKILL)
    until(lambda: events(tmp_path / "second", "recovered"))
    coordinator = _coordinator(next(host.runs.iterdir()))
    coordinator.kill()
    until(lambda: _coordinator_or_none(next(host.runs.iterdir())))
    assert [part.end().steps for part in joined] == [150, 150]
    host.end()


@pytest.mark.slow
def test_a_run_goes_on_from_the_checkpoint_of_one_machine(tmp_path: Path) -> None:
    undisturbed = Host(tmp_path / "undisturbed", here=2, steps=70)
    undisturbed.end()
    host = Host(tmp_path / "first", steps=70)
    joined = host.joined_by(tmp_path / "second")
    until(lambda: events(host.runs, "checkpoint") and step_of(host.runs) > 30)
    for process in psutil.Process().children(recursive=True):  # all at once, like a loss of power
        if process.pid not in own_processes():
            process.kill()
    for part in (host, joined):
        with pytest.raises(Exception, match=r"."):
            part.end()
    again = Host(tmp_path / "first", steps=70, resume=next(host.runs.iterdir()))
    other = again.joined_by(tmp_path / "third")
    assert again.end().steps == other.end().steps == 70
    assert min(event["step"] for event in events(tmp_path / "third", "step")) > 20
    # From the same state over the same samples: the same bits as if nothing had happened.
    assert digests(host.runs, tmp_path / "third") == digests(undisturbed.runs)


def test_who_is_refused_hears_why(tmp_path: Path) -> None:
    host = Host(tmp_path / "first", steps=40)
    other = write_workload(tmp_path / "elsewhere", slow=0.021)
    with pytest.raises(Refused, match="token is not that of the run"):
        join_run(dataclasses.replace(host.invitation(tmp_path / "second"), token="0" * 64, wait_seconds=0))
    with pytest.raises(Refused, match=r"workload: this run has blobs .* copy the workload's file"):
        join_run(host.invitation(tmp_path / "second", workload=str(other)))
    with pytest.raises(ConfigError, match=r"can't|no file|there is no such file"):
        join_run(host.invitation(tmp_path / "second", workload=str(tmp_path / "nowhere.py")))
    with pytest.raises(ConfigError, match="unknown interface 'eth99'"):
        join_run(host.invitation(tmp_path / "second", interface="eth99"))
    joined = host.joined_by(tmp_path / "second")  # and nobody was harmed
    assert host.end().steps == joined.end().steps == 40
    assert not events(host.runs, "failed")  # who was never in the run has nothing to tell of it


@pytest.mark.slow
def test_a_run_that_is_asked_to_stop_stops_everywhere_with_a_checkpoint(tmp_path: Path) -> None:
    host = Host(tmp_path / "first", steps=5000)
    joined = host.joined_by(tmp_path / "second")
    until(lambda: step_of(tmp_path / "second") > 5)
    os.kill(events(host.runs, "started")[0]["pid"], signal.SIGTERM)
    with pytest.raises(RunStopped, match="asked to stop"):
        joined.end()
    with pytest.raises(RunStopped, match="--resume"):
        host.end()


@pytest.mark.slow
def test_when_the_run_is_ended_where_it_was_started_others_hear_of_it(tmp_path: Path) -> None:
    host = Host(tmp_path / "first", steps=5000)
    joined = host.joined_by(tmp_path / "second")
    until(lambda: step_of(tmp_path / "second") > 5)
    run_directory = next(host.runs.iterdir())
    coordinator = _coordinator(run_directory)
    coordinator.terminate()  # what the launcher does when it ends the run's processes
    began = time.monotonic()
    with pytest.raises(RunStopped, match="ended where it was started"):
        joined.end()
    assert time.monotonic() - began < 10
    with pytest.raises(RunStopped):
        host.end()


def _coordinator(run_directory: Path) -> psutil.Process:
    found = _coordinator_or_none(run_directory)
    assert found is not None, "there is no coordinator"
    return found


def _coordinator_or_none(run_directory: Path) -> psutil.Process | None:
    lock = run_directory / "coordinator.json.lock"
    for process in psutil.Process().children(recursive=True):
        try:
            if lock in {path.readlink() for path in Path(f"/proc/{process.pid}/fd").iterdir()}:
                return process
        except OSError:
            continue
    return None


def test_nobody_is_there(tmp_path: Path) -> None:
    from minga.engines.joining import Invitation

    invitation = Invitation(address="127.0.0.1", port=1, token="0" * 64, runs=str(tmp_path), wait_seconds=0.3)
    began = time.monotonic()
    with pytest.raises(PeerTimeout, match="nobody listens there"):
        join_run(invitation)
    assert time.monotonic() - began < 3
    assert not any(tmp_path.iterdir())


@pytest.mark.slow
def test_everything_is_encrypted_with_certificates(tmp_path: Path) -> None:
    pytest.importorskip("cryptography")
    from minga.net.certificates import make_certificates

    first, second = make_certificates(tmp_path / "certificates", ["127.0.0.2", "127.0.0.1"])
    host = Host(tmp_path / "first", steps=30, tls=str(first))
    with pytest.raises((Refused, PeerTimeout), match=r"TLS|other side ended|can't connect"):
        join_run(host.invitation(tmp_path / "third", wait_seconds=0))
    joined = host.joined_by(tmp_path / "second", tls=str(second), interface="lo")
    assert host.end().steps == joined.end().steps == 30
    assert len(digests(host.runs, tmp_path / "second")) == 1


def test_addresses_as_people_write_them() -> None:
    assert parse_address("10.0.0.1:4000") == ("10.0.0.1", 4000)
    assert parse_address("10.0.0.1") == ("10.0.0.1", None)
    assert parse_address("[::1]:4000") == ("::1", 4000)
    assert parse_address("::1") == ("::1", None)
    assert parse_address(":4000") == ("", 4000)
    assert parse_address("localhost:4000") == ("127.0.0.1", 4000)
    for wrong in ("10.0.0.1:x", "10.0.0.1:70000", "no such host.example:1"):
        with pytest.raises(ConfigError):
            parse_address(wrong)
    assert join_command("::1", 4000, tls=True) == "minga join [::1]:4000 --tls DIRECTORY"


@pytest.mark.parametrize(
    ("where", "words"),
    [("0.0.0.0", "stands for all addresses"), ("192.0.2.1", "no address of this machine"), ("", "say where")],
)
def test_where_nobody_can_listen(where: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        Listening(where)


def test_loopback_is_for_this_machine_only() -> None:
    assert "this machine only" in reach("127.0.0.1")
    assert reach("192.0.2.1") == ""


def test_a_port_that_somebody_has(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        with pytest.raises(PortBusy, match="choose another"):
            Listening(f"127.0.0.1:{other.getsockname()[1]}")


def test_experiments_that_can_not_be_shared() -> None:
    listening = Listening("127.0.0.1", here=2)
    for experiment, words in (
        (Experiment(workload="digits"), "at least 2 nodes"),
        (Experiment(workload="digits", cluster=Cluster(nodes=3, cpu=(0.5,))), "lab"),
        (
            Experiment(workload="digits", strategy="ps:servers=3,placement=beside", cluster=Cluster(nodes=3)),  # type: ignore[arg-type]
            "--nodes 3",
        ),
    ):
        with pytest.raises(ConfigError, match=words):
            prepared(experiment, listening)
    with pytest.raises(ConfigError, match="more than the 3"):
        prepared(Experiment(workload="digits", cluster=Cluster(nodes=3)), Listening("127.0.0.1", here=4))


def test_tokens_come_from_where_nobody_else_looks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MINGA_TOKEN", raising=False)
    assert find_token(None, None) is None
    monkeypatch.setenv("MINGA_TOKEN", "e" * 32)
    assert find_token(None, None) == "e" * 32
    assert find_token("g" * 32, None) == "g" * 32
    (tmp_path / "token").write_text("f" * 32 + "\n")
    assert find_token(None, tmp_path / "token") == "f" * 32
    for given, file in (("short", None), ("g" * 32, tmp_path / "token"), (None, tmp_path / "nowhere")):
        with pytest.raises(ConfigError):
            find_token(given, file)


@pytest.mark.slow
def test_workers_elsewhere_and_servers_here(tmp_path: Path) -> None:
    host = Host(tmp_path / "first", strategy="ps:servers=2", steps=120)
    joined = host.joined_by(tmp_path / "second")
    until(lambda: step_of(tmp_path / "second") > 20)
    os.kill(next(event["pid"] for event in events(host.runs, "started") if event["rank"] == 2), signal.SIGKILL)
    assert host.end().steps == joined.end().steps == 120
    late = events(host.runs, "started")
    assert sum(event["rank"] == 2 for event in late) == 2  # a server was started again
