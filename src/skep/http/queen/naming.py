"""From Queen's names of a message to ours: the seq and the token of what an acknowledgment is for.

Queen's clients name a message by its transaction id and its partition id, and mostly say the lease id. The store tells what is under the
lease of that partition now; so nothing is remembered here. The token fences what is done with the answer.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from skep.engine import Engine
from skep.engine.validate import check_count
from skep.errors import Code, SkepError
from skep.http.queen.door import group_of
from skep.http.queen.names import LeasedBy, PartitionName, read_lease, read_partition
from skep.http.queen.shapes import QueenAck
from skep.http.request.call import Call
from skep.ids import id_text
from skep.model import LeasedMessage, LeaseFilter, Outcome, QueueKey, Retry, Settlement, Token
from skep.model.key import Verb

Found = Settlement | SkepError
"""The settlement of an acknowledgment, or why there can be none."""

OUTCOMES = {
    "completed": (Outcome.ACK, Retry.BACKOFF),
    "success": (Outcome.ACK, Retry.BACKOFF),
    "failed": (Outcome.NACK, Retry.BACKOFF),
    "retry": (Outcome.NACK, Retry.NOW),
    "dlq": (Outcome.REJECT, Retry.BACKOFF),
}
COMPLETED = "completed"
NOT_LEASED = "the message is not under a lease of this group: the lease has expired, or the message is settled; it may be with someone else"


class NamedMessage(NamedTuple):
    """What one acknowledgment names: a message that one of some groups has under one of some leases; without ``tokens`` under any."""

    row: QueenAck
    partition: PartitionName
    groups: Collection[str]
    tokens: Collection[Token]

    def filters(self) -> list[LeaseFilter]:
        """What to ask the store for."""
        token = next(iter(self.tokens)) if len(self.tokens) == 1 else None
        return [
            LeaseFilter(queue=self.partition.key, group=group, partition=self.partition.partition, token=token)
            for group in self.groups
        ]


class Leases(NamedTuple):
    """Some leases of a queue: their groups, and their tokens."""

    groups: dict[str, None]
    tokens: set[Token]


Required = Mapping[tuple[QueueKey, str | None], Leases]
"""The leases that a transaction requires, by queue and group; without a group all of the queue."""
Held = Mapping[LeaseFilter, Mapping[str, Sequence[LeasedMessage]]]
"""The messages under the leases of each filter, by the names that clients have for them."""


def required_leases(leases: Sequence[LeasedBy]) -> Required:
    """Leases by queue and group."""
    found: dict[tuple[QueueKey, str | None], Leases] = {}
    for one in leases:
        for group in (one.group, None):
            some = found.setdefault((one.key, group), Leases({}, set()))
            some.groups[one.group] = None
            some.tokens.add(one.token)
    return found


async def settlements_of(
    engine: Engine, call: Call, rows: Sequence[QueenAck], group: str | None, required: Required
) -> list[Found]:
    """The settlement of each row, or what is wrong with it. ``group`` is that of rows that name none."""
    check_count(len(rows), engine.settings.limits.settlements, "the number of acknowledgments")
    named = [_named(call, row, group, required) for row in rows]
    looks = sum(len(row.groups) for row in named if isinstance(row, NamedMessage))
    if looks > engine.settings.limits.settlements:
        raise SkepError(Code.INVALID_REQUEST, "leases of many groups are required: name the consumerGroup of each ack")
    filters = dict.fromkeys(one for row in named if isinstance(row, NamedMessage) for one in row.filters())
    held = await _held(engine, list(filters))
    taken: set[LeasedMessage] = set()
    return [_settlement(row, held, taken) if isinstance(row, NamedMessage) else row for row in named]


async def _held(engine: Engine, filters: Sequence[LeaseFilter]) -> Held:
    found: dict[LeaseFilter, dict[str, list[LeasedMessage]]] = {}
    most = engine.settings.limits.settlements
    for start in range(0, len(filters), most):
        some = filters[start : start + most]
        for one, messages in zip(some, await engine.browse.leased_messages(some), strict=True):
            by_name = found[one] = {}
            for message in messages:
                by_name.setdefault(message.transaction_id or id_text(message.id), []).append(message)
    return found


def _named(call: Call, row: QueenAck, group: str | None, required: Required) -> NamedMessage | SkepError:
    try:
        if (row.status or COMPLETED).lower() not in OUTCOMES:
            known = ", ".join(OUTCOMES)
            raise SkepError(Code.INVALID_REQUEST, f"a status is one of {known}, not {row.status!r:.100}")
        partition = read_partition(row.partition_id, call, Verb.POP)
        said = row.consumer_group or group
        if row.lease_id:
            lease = read_lease(row.lease_id, call)
            if lease.key != partition.key or lease.group != group_of(said):
                raise SkepError(
                    Code.STALE_LEASE,
                    f"the lease is of group {lease.group!r} of queue {lease.queue!r}, and the acknowledgment of group "
                    f"{group_of(said)!r:.100} of queue {partition.queue!r}",
                )
            return NamedMessage(row, partition, [lease.group], {lease.token})
        leases = required.get((partition.key, said or None))
        if leases is None:
            return NamedMessage(row, partition, [group_of(said)], ())
        return NamedMessage(row, partition, leases.groups, leases.tokens)
    except SkepError as error:
        return error


def _settlement(named: NamedMessage, held: Held, taken: set[LeasedMessage]) -> Found:
    """The settlement of a row. Of messages with one transaction id, each row takes the next."""
    row, is_named_twice = named.row, False
    for filter_ in named.filters():
        for message in held[filter_].get(row.transaction_id, ()):
            if named.tokens and message.token not in named.tokens:
                continue
            if named.partition.seq not in (None, message.seq):
                continue
            if message in taken:
                is_named_twice = True
                continue
            taken.add(message)
            outcome, retry = OUTCOMES[(row.status or COMPLETED).lower()]
            return Settlement(
                queue=filter_.queue, partition=message.partition, seq=message.seq, token=message.token, group=filter_.group,
                outcome=outcome, error=row.error, retry=retry,
            )  # fmt: skip
    return SkepError(Code.STALE_LEASE, "the request names the message twice" if is_named_twice else NOT_LEASED)
