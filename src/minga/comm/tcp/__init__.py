"""A transport over plain TCP connections (or TLS) that survives the loss of peers: abort it, form the next one.

with DataListener("127.0.0.1") as door:  # once per process; tell the others door.port
    comm = TcpTransport(generation, rank, door)
"""

from minga.comm.tcp.door import DataListener
from minga.comm.tcp.line import Tls
from minga.comm.tcp.transport import TcpTransport

__all__ = ["DataListener", "TcpTransport", "Tls"]
