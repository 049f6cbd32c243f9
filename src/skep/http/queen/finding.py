"""A message by the names that Queen's clients have for it, and pages by offset."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import msgspec

from skep.clock import Instant
from skep.engine import Engine
from skep.errors import Code, SkepError
from skep.http.queen.names import PartitionName, read_partition
from skep.http.request import parameters
from skep.http.request.call import Call
from skep.http.routes.messages import FINDING_PAGES, newest
from skep.ids import Id, minted_at, parse_id
from skep.model import MessageFilter, Seq, StoredMessage
from skep.model.key import Verb

OFFSET_MAX = 10_000
"""How far into a list an offset leads. Whoever lists more goes by Skep's own interface, whose pages begin after a row."""
PAGE = 100
NEAR_MICROS = 1_000_000
"""How far the time of a message may be from the millisecond in its id, where it is looked for by that."""
NEAR_ROWS = 1_000
"""How many messages are looked at in one step of that; there are as many steps as for a transaction id."""

TRACED = 10
"""How many messages of a trace are read, with their payloads, to find the one that began it."""

T = TypeVar("T")


async def message_of(engine: Engine, call: Call, verb: Verb) -> StoredMessage:
    """The message that the path names, without its payload; MESSAGE_NOT_FOUND when the log has none."""
    place = read_partition(call.path("partition"), call, verb)
    return await find_message(engine, place, call.path("transaction"))


async def find_message(engine: Engine, place: PartitionName, name: str) -> StoredMessage:
    """The newest message of a partition with this transaction id, without its payload; one without is named by its id."""
    if place.seq is None:
        found = await newest(engine, place.key, place.partition, name, preview_bytes=0)
    else:
        found = await _at(engine, place, place.seq, name)
    if found is None:
        found = await _by_id(engine, place, name)
    if found is None:
        raise SkepError(
            Code.MESSAGE_NOT_FOUND,
            f"no message of partition {place.partition!r} of queue {place.queue!r} has the transaction id {name[:100]!r}",
        )
    return found


async def _at(engine: Engine, place: PartitionName, seq: int, name: str) -> StoredMessage | None:
    """The message with a transaction id at a seq, where the partition id tells it from others with that transaction id."""
    wanted = MessageFilter(
        queue=place.key, partition=place.partition, transaction_id=name, after=Seq(seq - 1), limit=1, preview_bytes=0
    )
    found = (await engine.browse.messages(wanted)).messages
    return found[0] if found and found[0].seq == seq else None


async def _by_id(engine: Engine, place: PartitionName, name: str) -> StoredMessage | None:
    """A message by its id. One that came late into the log, as scheduled messages do, begins the trace of its id."""
    try:
        id_ = parse_id(name)
    except ValueError:
        return None
    near = await _minted_near(engine, place, id_)
    if near is not None:
        return near
    for message in await engine.browse.trace(id_, place.tenant, limit=min(TRACED, engine.settings.limits.page)):
        if message.id == id_ and message.queue == place.key and message.partition == place.partition:
            return message
    return None


async def _minted_near(engine: Engine, place: PartitionName, id_: Id) -> StoredMessage | None:
    """A message of a partition by its id: it is looked for in the seconds around the id's millisecond."""
    minted = minted_at(id_)
    if minted is None:
        return None
    wanted = MessageFilter(
        queue=place.key, partition=place.partition, since=Instant(minted - NEAR_MICROS), until=Instant(minted + NEAR_MICROS),
        limit=min(NEAR_ROWS, engine.settings.limits.page), preview_bytes=0,
    )  # fmt: skip
    for _ in range(FINDING_PAGES):
        page = await engine.browse.messages(wanted)
        for message in page.messages:
            if message.id == id_:
                return message
        if page.after is None:
            return None
        wanted = msgspec.structs.replace(wanted, after=page.after)
    return None


def offset_page(query: dict[str, str], limit: int = PAGE) -> tuple[int, int]:
    """The offset and the limit of a query."""
    offset = parameters.whole(query, "offset", 0)
    most = parameters.count(query, "limit", limit)
    if offset < 0 or offset + most > OFFSET_MAX:
        raise SkepError(Code.INVALID_REQUEST, f"offset and limit together lead to row {OFFSET_MAX} at most")
    return offset, most


def part(rows: Sequence[T], query: dict[str, str]) -> Sequence[T]:
    """The rows of a list that a query asks for."""
    offset, limit = offset_page(query, OFFSET_MAX if "offset" not in query else PAGE)
    return rows[offset : offset + limit]
