"""A transport over plain TCP connections (or TLS) that survives the loss of peers: abort it, form the next one.

    with DataListener("127.0.0.1") as listener:  # once per process; others connect to listener.port
        comm = TcpTransport(generation, rank, listener)

From the outside in: `transport` is what strategies see, `endpoint` moves the messages of all peers on, `connection`
those of one, `frames` are what travels; `mailbox` says which message is for which operation; `listener` and `io_thread`
make the connections.
"""

from minga.comm.tcp.listener import DataListener
from minga.comm.tcp.transport import TcpTransport

__all__ = ["DataListener", "TcpTransport"]
