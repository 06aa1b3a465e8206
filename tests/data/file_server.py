"""A real HTTP server on loopback that hands out files, as badly as it is told to."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Behaviour:
    """What the server has, and how it behaves."""

    files: dict[str, bytes] = field(default_factory=dict)
    breaks_after: list[int] = field(default_factory=list)
    """For each answer in turn: bytes after which the connection ends; afterwards answers are whole."""
    knows_ranges: bool = True
    errors: list[int] = field(default_factory=list)
    """Status codes that are given before anything else, one per request."""
    tag: str = '"one"'
    asked: list[str | None] = field(default_factory=list)
    """The Range of each request that was answered with content."""


@dataclass(frozen=True)
class Server:
    address: str
    behaviour: Behaviour

    def url(self, name: str) -> str:
        return f"{self.address}/{name}"


@contextlib.contextmanager
def serving(behaviour: Behaviour) -> Iterator[Server]:
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

        def do_GET(self) -> None:
            if behaviour.errors:
                self.send_error(behaviour.errors.pop(0))
                return
            content = behaviour.files.get(self.path.lstrip("/"))
            if content is None:
                self.send_error(404)
                return
            asked = self.headers.get("Range")
            behaviour.asked.append(asked)
            same = self.headers.get("If-Range") in (None, behaviour.tag)
            start = 0
            if asked and behaviour.knows_ranges and same:
                start = int(asked.removeprefix("bytes=").removesuffix("-"))
                if start >= len(content):
                    self.send_response(416)
                    self.send_header("Content-Range", f"bytes */{len(content)}")
                    self.send_header("Content-Length", "0")
                    self.end_headers()
                    return
                self.send_response(206)
                self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
            else:
                self.send_response(200)
            self.send_header("Content-Length", str(len(content) - start))
            self.send_header("ETag", behaviour.tag)
            self.end_headers()
            left = content[start:]
            self.wfile.write(left[: behaviour.breaks_after.pop(0)] if behaviour.breaks_after else left)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield Server(f"http://127.0.0.1:{server.server_address[1]}", behaviour)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
