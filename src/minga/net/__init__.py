"""Between processes: one listener, one greeting, one TLS type, for members and coordinator and for ranks alike."""

from minga.net.generation import Generation, MemberInfo, Position, new_incarnation
from minga.net.tls import Tls, load_tls

__all__ = ["Generation", "MemberInfo", "Position", "Tls", "load_tls", "new_incarnation"]
