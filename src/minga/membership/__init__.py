"""Who is in the run: a coordinator outside of all ranks, and a `Member` in each of them (docs/membership.md).

from minga.membership.member import Member
member = Member(CoordinatorAddress(address="127.0.0.1", port=4000, token=token), info)
generation = member.join(timeout_seconds=60)
"""
