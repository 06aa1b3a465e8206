"""Messages in virtual time: the same ranks, without waiting."""

from minga.comm.simulated.engine import Engine
from minga.comm.simulated.transport import SimulatedTransport
from minga.comm.simulated.wires import Cable, Carrier, ScheduledChange, Wires
from minga.comm.simulated.world import SimulatedWorld

__all__ = ["Cable", "Carrier", "Engine", "ScheduledChange", "SimulatedTransport", "SimulatedWorld", "Wires"]
