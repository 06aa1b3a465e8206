"""Who is in the run, and how that changes while it goes on."""

from minga.membership.generation import Generation, MemberInfo

__all__ = ["Generation", "MemberInfo"]
