"""From Queen's names of a message to ours: the seq and the token of what an acknowledgment is for.

Queen's clients name a message by its transaction id and its partition id, and mostly say the lease id. The store tells what is under the
lease of that partition now; so nothing is remembered here. The token fences what is done with the answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from skep.engine import Engine
from skep.errors import Code, SkepError
from skep.http.queen.door import group_of
from skep.http.queen.names import LeasedBy, PartitionName, read_lease, read_partition
from skep.http.queen.shapes import QueenAck
from skep.http.request.call import Call
from skep.ids import id_text
from skep.model import LeasedMessage, LeaseFilter, Outcome, Settlement
from skep.model.key import Verb

Found = Settlement | SkepError
"""The settlement of an acknowledgment, or why there can be none."""

OUTCOMES = {
    "completed": Outcome.ACK,
    "success": Outcome.ACK,
    "failed": Outcome.NACK,
    "retry": Outcome.NACK,
    "dlq": Outcome.REJECT,
}
COMPLETED = "completed"
NOT_LEASED = "the message is not under a lease of this group: the lease has expired, or the message is settled; it may be with someone else"


class NamedMessage(NamedTuple):
    """What one acknowledgment names. Several leases may be the one that it is under; with none of them any lease counts."""

    row: QueenAck
    outcome: Outcome
    partition: PartitionName
    group: str
    leases: Sequence[LeasedBy]

    def filters(self) -> list[LeaseFilter]:
        """What to ask the store for."""
        key, partition = self.partition.key, self.partition.partition
        if not self.leases:
            return [LeaseFilter(queue=key, group=self.group, partition=partition)]
        return [LeaseFilter(queue=key, group=one.group, partition=partition, token=one.token) for one in self.leases]


async def settlements_of(
    engine: Engine, call: Call, rows: Sequence[QueenAck], group: str | None, required: Sequence[LeasedBy] = ()
) -> list[Found]:
    """The settlement of each row, or what is wrong with it. ``group`` is that of rows that name none.

    ``required`` are the leases of a transaction, whose rows have none of their own.
    """
    wanted = [_wanted(call, row, group, required) for row in rows]
    filters = dict.fromkeys(one for row in wanted if isinstance(row, NamedMessage) for one in row.filters())
    held = await _held(engine, list(filters))
    taken: dict[LeasedMessage, str] = {}
    return [_settlement(row, held, taken) if isinstance(row, NamedMessage) else row for row in wanted]


class GroupHolds(NamedTuple):
    """A leased message, and the group that holds it."""

    group: str
    message: LeasedMessage


async def _held(engine: Engine, filters: Sequence[LeaseFilter]) -> dict[LeaseFilter, dict[str, list[GroupHolds]]]:
    """For each filter the messages under its leases, by the names that clients have for them."""
    if not filters:
        return {}
    found: dict[LeaseFilter, dict[str, list[GroupHolds]]] = {}
    for one, messages in zip(filters, await engine.browse.leased_messages(filters), strict=True):
        by_name = found[one] = {}
        for message in messages:
            by_name.setdefault(message.transaction_id or id_text(message.id), []).append(GroupHolds(one.group, message))
    return found


def _wanted(call: Call, row: QueenAck, group: str | None, required: Sequence[LeasedBy]) -> NamedMessage | SkepError:
    try:
        outcome = OUTCOMES.get((row.status or COMPLETED).lower())
        if outcome is None:
            known = ", ".join(OUTCOMES)
            raise SkepError(Code.INVALID_REQUEST, f"a status is one of {known}, not {row.status!r:.100}")
        partition = read_partition(row.partition_id, call, Verb.POP)
        named = row.consumer_group or group
        leases = [one for one in required if one.key == partition.key and (not named or one.group == named)]
        if row.lease_id:
            lease = read_lease(row.lease_id, call)
            if lease.key != partition.key or lease.group != group_of(named):
                raise SkepError(
                    Code.STALE_LEASE,
                    f"the lease is of group {lease.group!r} of queue {lease.queue!r}, and the acknowledgment of group "
                    f"{group_of(named)!r:.100} of queue {partition.queue!r}",
                )
            leases = [lease]
        return NamedMessage(row, outcome, partition, group_of(named), leases)
    except SkepError as error:
        return error


def _settlement(
    wanted: NamedMessage, held: dict[LeaseFilter, dict[str, list[GroupHolds]]], taken: dict[LeasedMessage, str]
) -> Found:
    """The settlement of a row. Of messages with one transaction id, each row takes the next."""
    name = wanted.row.transaction_id
    found = [one for filter_ in wanted.filters() for one in held[filter_].get(name, ())]
    free = next((one for one in found if one.message not in taken), None)
    if free is None:
        text = "the request names the message twice" if found else NOT_LEASED
        return SkepError(Code.STALE_LEASE, text)
    taken[free.message] = name
    return Settlement(
        queue=wanted.partition.key, partition=free.message.partition, seq=free.message.seq, token=free.message.token,
        group=free.group, outcome=wanted.outcome, error=wanted.row.error,
    )  # fmt: skip
