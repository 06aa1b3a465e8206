"""A laboratory on one machine: hosts with shaped links and shares of the CPU.

with Lab(Network(bandwidth="10mbit", delay="5ms"), hosts=4) as lab: ...
"""

from minga.lab.laboratory import Lab, Measured

__all__ = ["Lab", "Measured"]
