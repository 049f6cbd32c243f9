"""What a failover to an asynchronous standby may lose: answers that are no promise.

Commits that the standby did not have are gone. So a call whose answer came after the standby was last known to have everything, and that
began before the primary died, is judged like one without an answer: it took effect, or it did not. The same holds for whatever
such a call had begun: settlements under a lease that it gave, and accepted pushes that the server stored meanwhile.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from msgspec import Struct, structs

from skep.clock import Instant
from skep.model import Outcome, PushStatus, QueueKey, QueueSettings, Seq, Settlement, Token
from torture.history import Call

EVER = Instant(2**62)
CERTAIN = ("hook", "receive", "dead")
"""What was sent and received by others is no commit. Looks at dead letters are only added up, and excuse: one that saw too much accuses nobody."""


class Loss(Struct, frozen=True):
    """One failover, in ticks: all that was answered before ``since`` was kept, and all that began after ``until`` is the new primary's."""

    since: int
    until: int

    def may_take(self, call: Call) -> bool:
        """Whether the call may be lost, although it was answered."""
        if call.verb == "accept":
            return call.started <= self.until  # nobody knows when the server stored it
        return call.started <= self.until and call.last_tick >= self.since


def unpromised(calls: list[Call], losses: list[Loss]) -> list[Call]:
    """The calls, those without an answer that may be lost."""
    if not losses:
        return calls
    doubtful = {id(call) for call in calls if any(loss.may_take(call) for loss in losses)}
    held = leases([call for call in calls if id(call) in doubtful])
    found = []
    for call in calls:
        is_doubtful = call.verb not in CERTAIN and (id(call) in doubtful or not held.keys().isdisjoint(tokens(call)))
        found.append(without_answer(call, held) if is_doubtful and call.ended is not None else call)
    return found


def leases(calls: list[Call]) -> dict[Token, list[tuple[str, Seq]]]:
    """What the calls were given under each token: partitions and seqs."""
    held = defaultdict(list)
    for call in calls:
        if call.verb == "pop":
            for result in call.answer or ():
                for delivery in result.deliveries:
                    held[delivery.token].append((delivery.partition, delivery.seq))
    return held


def tokens(call: Call) -> Iterator[Token]:
    """The tokens that a call names."""
    if call.verb == "settle":
        yield from (settlement.token for settlement in call.request)
    elif call.verb == "transact":
        yield from (settlement.token for transaction in call.request for settlement in transaction.settlements)
    elif call.verb == "renew":
        yield from (renewal.token for renewal in call.request)
    elif call.verb == "release":
        yield call.request[3]


def without_answer(call: Call, held: dict[Token, list[tuple[str, Seq]]]) -> Call:
    request: Any = call.request
    if call.verb == "settle":
        request = [each for settlement in request for each in by_message(settlement, held)]
    return structs.replace(call, request=request, ended=None, answer=None, until=EVER)


def by_message(settlement: Settlement, held: dict[Token, list[tuple[str, Seq]]]) -> list[Settlement]:
    """An ack of a lease as acks of its messages: nobody else knows them any more."""
    if settlement.outcome is not Outcome.ACK_THROUGH or settlement.token not in held:
        return [settlement]
    return [
        structs.replace(settlement, seq=seq, outcome=Outcome.ACK)
        for partition, seq in held[settlement.token]
        if partition == settlement.partition and seq <= settlement.seq
    ]


def lost_messages(calls: list[Call], losses: list[Loss], settings: dict[QueueKey, QueueSettings]) -> int:
    """How many messages were answered as stored, and nobody saw them after the failover. Queues that drop messages are left out."""
    last = max((loss.until for loss in losses), default=0)
    seen = {id_ for call in calls if call.started > last for id_ in sights(call)}
    gone = 0
    for call in calls:
        if call.verb == "push" and call.answer is not None and any(loss.may_take(call) for loss in losses):
            for message, result in zip(call.request[0].messages, call.answer[0].results, strict=False):
                is_stored = result.status is PushStatus.STORED
                gone += is_stored and keeps(settings.get(message.queue)) and result.id not in seen
    return gone


def keeps(settings: QueueSettings | None) -> bool:
    """Whether a queue keeps what it has, so that the looks at the end show it: not those that messages are deleted from."""
    return (
        settings is not None
        and settings.max_attempts > 0
        and not (settings.max_age_seconds or settings.max_wait_seconds or settings.completed_retention_seconds)
    )


def sights(call: Call) -> Iterator[Any]:
    """The ids of the messages that a call saw."""
    if call.ended is not None and call.verb == "log":
        yield from (message.id for message in call.answer)
    elif call.ended is not None and call.verb == "pop":
        yield from (delivery.id for result in call.answer for delivery in result.deliveries)
