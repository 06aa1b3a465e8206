"""Steps that were given up: a strategy's mistake, which would come again for ever, or something that passes?

    review.gave_up(GivenUp.of(lost, ...), members)        # on each rank, when a generation is over in mid-training
    review.look(comm, members)                            # in the next one: `StrategyError` on all ranks, or nothing

Ranks that wait for each other, or get what they did not expect, are as good as the network lets them be: all are there,
and do what the strategy says. The first time they recover, since a network may do that too. When a generation with the
same members comes to nothing again (or to little, for the third time), or a message had another length, the run ends
and says who waited for whom. It ends at once where some have made all of their steps and others have not: these would
take the state of those at the end, and nobody would ever hear of it.
"""

from __future__ import annotations

import json
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Self

from minga.comm.traced import MessageFacts
from minga.comm.transport import Transport
from minga.errors import PeerLost, PeerTimeout, PeerWrong, ProtocolError, StrategyError, WrongLength
from minga.net import strict
from minga.net.strict import Count, Flag
from minga.strategies.parameter_server.recovery import share_texts

__all__ = ["GivenUp", "Review", "exchange"]

_MOST_SHORT = 3
_HIDDEN = ("comm/traced.py", "comm/transport.py", "comm/background.py", "comm/tcp")
_REMEDY = (
    "All ranks must make the same exchanges in the same order, with vectors of the same length and type, and a receive "
    "for each send; look at what depends on comm.rank (docs/strategies.md)"
)


@dataclass(frozen=True, kw_only=True)
class GivenUp(strict.StrictRecord):
    """A rank's account of why it could not train on."""

    rank: Count
    step: Count
    fruitless: Flag
    """Whether it had made no exchange in the generation that was given up."""
    short: Flag
    """Whether it has waited longer at the end of that generation than it had trained before."""
    waited: Flag
    """Whether it has waited for another one in vain, rather than lost a connection."""
    ended: Flag
    """Whether it had made all of its steps, which are those of the others."""
    waiting: str = ""
    """For what, at the end."""
    where: str = ""
    """The lines of the program."""
    wrong: str = ""
    """What came instead of what it waited for."""
    peer: Count | None = None
    """From whom."""
    sent: dict[int, str] = field(default_factory=dict)
    """By rank, the last message to it: one of them may not have expected that."""

    @classmethod
    def of(
        cls,
        lost: PeerLost,
        *,
        rank: int,
        step: int,
        fruitless: bool,
        short: bool,
        ended: bool,
        accused: bool,
        sent: Mapping[int, MessageFacts] | None = None,
    ) -> Self:
        """`accused`: whether it has said that another one does not answer."""
        wrong = isinstance(lost, WrongLength)
        return cls(
            rank=rank,
            step=step,
            fruitless=fruitless,
            short=short,
            waited=accused or isinstance(lost, PeerTimeout),
            ended=ended,
            waiting=lost.waiting,
            where=_lines_of(lost),
            wrong=str(lost) if wrong else "",
            peer=lost.rank if wrong else None,
            sent={to: message.content for to, message in (sent or {}).items()},
        )

    def __str__(self) -> str:
        did = f"waited {self.waiting}" if self.waiting else "waited for nobody"
        return f"rank {self.rank} {did} in step {self.step:,}{f', at {self.where}' if self.where else ''}"


class Review:
    """What the generations of a run have come to, as far as a strategy's mistakes are concerned."""

    def __init__(self) -> None:
        self._members: frozenset[str] = frozenset()
        self._in_vain = 0
        self._account: GivenUp | None = None

    def gave_up(self, account: GivenUp, members: Sequence[str]) -> None:
        """A generation with these members was given up in mid-training."""
        if frozenset(members) != self._members:
            self._members, self._in_vain = frozenset(members), 0
        self._account = account

    def same(self, members: Sequence[str]) -> bool:
        """Whether these were the members when training was given up last."""
        return frozenset(members) == self._members

    def look(self, comm: Transport, members: Sequence[str]) -> None:
        """With the next generation, on all of its ranks: `StrategyError` if it would go like the last one again."""
        accounts = exchange(comm, self._account)
        self._account = None
        for each in accounts:
            if each.wrong:
                raise StrategyError(_mismatch(each, accounts))
        if not accounts:  # nobody has trained since the last time
            return
        everybody = len(accounts) == comm.size and self.same(members)
        if not everybody or not any(each.waited for each in accounts):
            self._in_vain = 0
            return
        fruitless = all(each.fruitless for each in accounts)
        apart = any(each.ended for each in accounts) and not all(each.ended for each in accounts)
        self._in_vain = self._in_vain + 1 if fruitless or all(each.short for each in accounts) else 1
        if apart or self._in_vain >= (2 if fruitless else _MOST_SHORT):
            accounts.sort(key=lambda each: each.rank)
            first, last_step = min(each.step for each in accounts), max(each.step for each in accounts)
            steps = f"step {first:,} was" if first == last_step else f"steps {first:,} to {last_step:,} were"
            times = {1: "", 2: ", twice in a row"}.get(self._in_vain, f", {self._in_vain} times in a row")
            raise StrategyError(
                f"{steps} given up{times}, and all {comm.size} ranks were there, waiting for each other: "
                f"{'; '.join(map(str, accounts))}. {_REMEDY}"
            )


def _mismatch(account: GivenUp, accounts: Sequence[GivenUp]) -> str:
    sent = next((each.sent.get(account.rank) for each in accounts if each.rank == account.peer), None)
    last = f" (the last that rank {account.peer} had sent to it was {sent})" if sent else ""
    return (
        f"{account.wrong}{last}: rank {account.rank} waited {account.waiting or 'for another message'} in step "
        f"{account.step:,}{f', at {account.where}' if account.where else ''}. {_REMEDY}"
    )


def exchange(comm: Transport, own: GivenUp | None) -> list[GivenUp]:
    """The accounts of all ranks that have one, in the order of ranks."""
    found = []
    for rank, text in enumerate(share_texts(comm, json.dumps({} if own is None else asdict(own)))):
        try:
            table = strict.decode(text.encode())
            found += [strict.parse(GivenUp, table, "account")] if table else []
        except ProtocolError as error:
            raise PeerWrong(f"rank {rank} sent a malformed account of its last step: {error}", rank=rank) from None
    return found


def _lines_of(error: BaseException) -> str:
    """The lines of the program that led to a wait, innermost last; without those of the loop and the transport."""
    package = Path(__file__).parents[1]
    found: list[str] = []
    for frame in traceback.extract_tb(error.__traceback__):
        path = Path(frame.filename)
        inside = path.relative_to(package).as_posix() if path.is_relative_to(package) else path.name
        if inside == "training/loop.py":
            found = []
        elif not inside.startswith(_HIDDEN) and "torch" not in path.parts:
            found.append(f"{path.name}:{frame.lineno} ({frame.name})")
    if len(found) > 4:
        found[2:-2] = ["..."]
    return " > ".join(found)
