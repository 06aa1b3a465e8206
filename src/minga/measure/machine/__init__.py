"""What this machine offers for Minga, what is missing, and what to do about it.

    examination = examine(minga_version="0.1.0", threads_per_rank=1)
    examination.local_run_works

Nothing is changed and nothing is sent: it looks at files, asks libraries, and connects once to itself on loopback.
What can't be found out is `unknown`, never guessed. Functions that read files take the `root` below which they look, so
that tests can show them other machines.
"""

from minga.measure.machine.examination import examine
from minga.measure.machine.findings import MachineExamination, MachineFinding, State

__all__ = ["MachineExamination", "MachineFinding", "State", "examine"]
