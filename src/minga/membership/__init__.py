"""Who is in the run: a coordinator outside of all ranks, and a `Member` in each of them (docs/membership.md).

from minga.membership.member import Member
member = Member("127.0.0.1", 4000, token, info)
generation = member.join(timeout_seconds=60)
"""

from minga.net.generation import Generation, MemberInfo, Position, new_incarnation

__all__ = ["Generation", "MemberInfo", "Position", "new_incarnation"]
