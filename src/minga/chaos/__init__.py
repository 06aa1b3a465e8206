"""Faults on purpose: real runs whose processes are killed, stopped and cut off, and what became of them.

    minga chaos                       # all faults, about 25 minutes
    minga chaos --short               # a few, in less than a minute
    minga chaos --only kill-rank-0 --trials 5

What is promised, and how it is tested: docs/faults.md.
"""
