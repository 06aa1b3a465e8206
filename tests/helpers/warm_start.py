"""Programs of Minga that tests start begin in a process that has imported torch already.

    start_warm()            # once for a session: from then on `subprocess` starts `python -m minga ...`
                            # and scripts by forking

Importing torch takes seconds of a processor, and hundreds of tests start a program, a run its fork server. What is
forked is as much a process of its own as any: with its number, its environment, its files, its session, killed and
awaited as usual, a child of the one who has called `subprocess`. What it does not show is that Python finds and imports
Minga: tests with the fixture `cold_start` start it as everybody does.

This hooks into a private method of `subprocess.Popen`, which has all the rest of it in common with what tests expect.
"""

from __future__ import annotations

import array
import atexit
import contextlib
import ctypes
import gc
import importlib
import inspect
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import threading
import traceback
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

__all__ = ["cold", "own_processes", "start_warm"]

_PROGRAMS = ("minga", "minga.launch.fork_server", "ipykernel_launcher")
# They need no torch, and enter namespaces, which only processes without threads may.
_COLD_COMMANDS = ("lab",)
_SET_CHILD_SUBREAPER = 36
_LONGEST = 1 << 20
_MOST_FILES = 250

# As the launcher starts its fork server: libraries that start threads when they are imported make forking unsafe.
_ENVIRONMENT = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "TORCH_CPP_LOG_LEVEL": "ERROR"}

_Popen = subprocess.Popen
_signature = inspect.signature(_Popen._execute_child)  # type: ignore[attr-defined]
_nursery: _Nursery | None = None
_warm = True


def start_warm() -> None:
    """Only where processes can be adopted, which is on Linux."""
    if sys.platform == "linux":
        subprocess.Popen = _WarmPopen  # type: ignore[misc]


@contextlib.contextmanager
def cold() -> Iterator[None]:
    """Meanwhile, programs are started as everybody does."""
    global _warm
    _warm = False
    try:
        yield
    finally:
        _warm = True


def own_processes() -> set[int]:
    """Those that belong to no test."""
    return {_nursery.pid} if _nursery is not None else set()


class _WarmPopen(_Popen):  # type: ignore[type-arg]
    def _execute_child(self, *arguments: Any, **named: Any) -> None:
        asked = _signature.bind(self, *arguments, **named).arguments
        if not (_warm and _fits(asked)):
            super()._execute_child(*arguments, **named)  # type: ignore[misc]
            return
        streams = [asked[name] if asked[name] != -1 else place for place, name in enumerate(_CHILDS_ENDS)]
        self.pid = _the_nursery().start(
            list(map(os.fspath, asked["args"][1:])),
            environment=asked["env"] if asked["env"] is not None else os.environ,
            folder=os.fspath(asked["cwd"] or Path.cwd()),
            streams=streams,
            kept=sorted(asked["pass_fds"]),
            new_session=asked["start_new_session"],
        )
        self._child_created = True
        self._close_pipe_fds(*(asked[name] for name in _PIPES))  # type: ignore[attr-defined]


_CHILDS_ENDS = ("p2cread", "c2pwrite", "errwrite")
_PIPES = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")


def _fits(asked: Mapping[str, Any]) -> bool:
    command = asked["args"]
    if isinstance(command, (str, bytes, os.PathLike)) or asked["shell"] or asked["preexec_fn"] is not None:
        return False
    words = [os.fspath(word) for word in command]
    if words[:1] != [sys.executable] or len(words) < 2:
        return False
    if words[1].endswith(".py"):
        return True
    return words[1] == "-m" and words[2] in _PROGRAMS and words[3:4] not in [[each] for each in _COLD_COMMANDS]


def _the_nursery() -> _Nursery:
    global _nursery
    if _nursery is None:
        _nursery = _Nursery()
        atexit.register(_nursery.close)
    return _nursery


class _Nursery:
    """A process that has imported everything, and becomes programs when it is asked to."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self.pid = self._make(theirs)

    def _make(self, theirs: socket.socket) -> int:
        """From nothing, which takes some seconds."""
        process = _Popen(
            [sys.executable, __file__, str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            env={**os.environ, **_ENVIRONMENT},
        )
        process.returncode = 0  # it is awaited here
        return process.pid

    def start(
        self,
        words: Sequence[str],
        *,
        environment: Mapping[str, str],
        folder: str,
        streams: Sequence[int],
        kept: Sequence[int],
        new_session: bool,
    ) -> int:
        what = {
            "words": words,
            "environment": {os.fsdecode(key): os.fsdecode(value) for key, value in environment.items()},
            "folder": folder,
            "kept": list(kept),
            "new_session": new_session,
        }
        files = array.array("i", [*streams, *kept])
        with self._lock:
            # Its parent ends at once, and the child becomes ours.
            _adopt(True)
            try:
                ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, files.tobytes())]
                self._socket.sendmsg([json.dumps(what).encode()], ancillary)
                answer = self._socket.recv(100)
            finally:
                _adopt(False)
        if not answer:
            raise RuntimeError("the process that programs are forked from has ended")
        return int(answer)

    def close(self) -> None:
        self._socket.close()
        os.kill(self.pid, signal.SIGKILL)  # it may still be importing
        os.waitpid(self.pid, 0)


class _Copy(_Nursery):
    """For a program that was started warm itself, and has not begun yet, and starts programs."""

    def _make(self, theirs: socket.socket) -> int:
        pid = os.fork()
        if pid == 0:
            self._socket.close()
            nowhere = os.open(os.devnull, os.O_RDWR)
            for stream in range(3):  # whoever reads what the program writes is not to wait for this process
                os.dup2(nowhere, stream)
            _serve(theirs)
            os._exit(0)
        return pid


def _adopt(yes: bool) -> None:
    """Whether this process becomes the parent of grandchildren whose parents end."""
    if ctypes.CDLL(None, use_errno=True).prctl(_SET_CHILD_SUBREAPER, int(yes), 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "can't become the parent of forked programs")


# --- in the process that programs are forked from -----------------------------------------------------------------


def _import() -> None:
    import torch

    for module in ("minga.cli.main", "minga.engines.local", "minga.launch.rank"):
        importlib.import_module(module)
    # The first optimizer of a process imports much of torch.
    torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1)
    torch.set_num_threads(1)
    gc.collect()
    gc.freeze()  # what is forked need not look through all that


def _serve(channel: socket.socket) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of the terminal; what is forked gets its own
    hear, tell = os.pipe()
    while True:
        content, ancillary, _, _ = channel.recvmsg(_LONGEST, socket.CMSG_SPACE(4 * _MOST_FILES))
        if not content:
            return
        files = array.array("i")
        for _, _, data in ancillary:
            files.frombytes(data)
        between = os.fork()
        if between == 0:
            pid = os.fork()
            if pid == 0:
                channel.close()
                _become(json.loads(content), list(files))
            os.write(tell, str(pid).encode())
            os._exit(0)
        for file in files:
            os.close(file)
        os.waitpid(between, 0)  # from here on, the program is a child of the one who has asked
        channel.send(os.read(hear, 100))


def _become(what: dict[str, Any], files: list[int]) -> NoReturn:
    """In the child: a program like any other. `os._exit`, since this is a copy of another one's stack."""
    code = 1
    try:
        if what["new_session"]:
            os.setsid()
        _place_files(files, [0, 1, 2, *what["kept"]])
        os.chdir(what["folder"])
        os.environ.clear()
        os.environ.update(what["environment"])
        signal.signal(signal.SIGINT, signal.default_int_handler)
        words = what["words"]
        if words[1:2] != ["minga.launch.fork_server"]:
            _start_from_a_copy()
        sys.argv = words if words[0] != "-m" else ["", *words[2:]]
        found = os.environ.get("PYTHONPATH", "").split(os.pathsep)
        first = what["folder"] if words[0] == "-m" else str(Path(words[0]).resolve().parent)
        sys.path[:] = [first, *filter(None, found), *sys.path[1:]]
        if words[0] != "-m":
            _run_script(words[0])
        else:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", RuntimeWarning)  # that some of it is imported already
                runpy.run_module(words[1], run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as leaving:
        code = leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
        if leaving.code is not None and not isinstance(leaving.code, int):
            print(leaving.code, file=sys.stderr)
    except KeyboardInterrupt:
        traceback.print_exc()
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(BaseException):
            threading._shutdown()  # type: ignore[attr-defined]
            atexit._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        os._exit(code)


def _run_script(path: str) -> None:
    main = sys.modules["__main__"] = ModuleType("__main__")
    main.__file__ = path
    exec(compile(Path(path).read_bytes(), path, "exec"), vars(main))


def _start_from_a_copy() -> None:
    global _nursery
    _nursery = _Copy()
    atexit.register(_nursery.close)
    start_warm()


def _place_files(files: list[int], places: list[int]) -> None:
    """Each file at its place, and no others."""
    above = max(places) + 1
    moved = []
    for file in files:
        while (copy := os.dup(file)) < above:  # what lies in a place that is still needed
            pass
        moved.append(copy)
    for copy, place in zip(moved, places, strict=True):
        os.dup2(copy, place)
    low = 3
    for place in [*sorted(each for each in places if each > 2), os.sysconf("SC_OPEN_MAX")]:
        os.closerange(low, min(place, 1 << 16))
        low = place + 1
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stdout = open(1, "w", encoding="utf-8", buffering=1, closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", encoding="utf-8", buffering=1, closefd=False)  # noqa: SIM115


if __name__ == "__main__":
    _import()
    _serve(socket.socket(fileno=int(sys.argv[1])))
