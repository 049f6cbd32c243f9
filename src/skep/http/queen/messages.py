"""`messages`: the log of a queue, and single messages by partition id and transaction id."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from skep.errors import Code, SkepError
from skep.http.deleting import delete_message
from skep.http.queen.door import QueenDoor, group_of
from skep.http.queen.finding import message_of, offset_page
from skep.http.queen.names import PartitionName, write_id
from skep.http.queen.shapes import QueenStored
from skep.http.request import parameters
from skep.http.request.call import Answer, Call, json_answer
from skep.http.routes.messages import largest_message
from skep.http.views import json_payload
from skep.ids import id_text
from skep.model import MessageFilter, MessageState, Seq, StoredMessage
from skep.model.key import Verb
from skep.wire.times import to_datetime


class QueenState(StrEnum):
    """How far a group is with a message, in Queen's words."""

    PENDING = "pending"
    PROCESSING = "processing"
    COMPLETED = "completed"
    FAILED = "failed"
    DEAD_LETTER = "dead_letter"


STATES = {
    QueenState.PENDING: MessageState.PENDING,
    QueenState.PROCESSING: MessageState.IN_FLIGHT,
    QueenState.COMPLETED: MessageState.SETTLED,
    QueenState.FAILED: MessageState.DEAD,
    QueenState.DEAD_LETTER: MessageState.DEAD,
}
_WORDS = {state: word for word, state in STATES.items()}


async def list_messages(door: QueenDoor, call: Call) -> Answer:
    """List messages of a queue, newest first. Before anybody pops without a group, all are pending for who does."""
    query = call.query
    offset, limit = offset_page(query)
    state = parameters.choice(query, "status", QueenState)
    named = query.get("consumerGroup") or None
    wanted = MessageFilter(
        queue=call.queue(parameters.needed(query, "queue")), partition=query.get("partition") or None, group=group_of(named),
        state=None if state is None else STATES[state], descending=True, preview_bytes=0,
    )  # fmt: skip
    try:
        found = await _newest(door, wanted, offset + limit)
    except SkepError as error:
        if error.code is not Code.GROUP_NOT_FOUND or named is not None:
            raise
        unread = msgspec.structs.replace(wanted, group=None, state=None)
        is_wanted = wanted.state in (None, MessageState.PENDING)
        found = [
            msgspec.structs.replace(one, state=MessageState.PENDING)
            for one in (await _newest(door, unread, offset + limit) if is_wanted else ())
        ]
    return json_answer({"messages": [_stored(one) for one in found[offset:]], "limit": limit, "offset": offset})


async def _newest(door: QueenDoor, wanted: MessageFilter, most: int) -> list[StoredMessage]:
    """The newest messages, page by page, at most so many."""
    found: list[StoredMessage] = []
    after: Seq | None = None
    while len(found) < most:
        page = await door.engine.browse.messages(msgspec.structs.replace(wanted, after=after, limit=most - len(found)))
        found += page.messages
        after = page.after
        if after is None:
            break
    return found


async def show(door: QueenDoor, call: Call) -> Answer:
    """Show a message with its payload, and how far a group is with it."""
    await call.hold(door.answers, 2 * largest_message(door.engine))
    found = await message_of(door.engine, call, Verb.READ)
    message = await door.engine.browse.message(found.queue, found.seq)
    state = await _state(door, found, call.query.get("consumerGroup") or None)
    told = _stored(msgspec.structs.replace(message, state=state))
    told.payload = told.data = json_payload(message.payload, message.content_type)
    return json_answer(told)


async def _state(door: QueenDoor, one: StoredMessage, named: str | None) -> MessageState | None:
    """How far a group is with a message. Before anybody pops without a group, it is pending for who does."""
    wanted = MessageFilter(
        queue=one.queue,
        partition=one.partition,
        group=group_of(named),
        after=Seq(one.seq - 1),
        limit=1,
        preview_bytes=0,
    )
    try:
        [seen] = (await door.engine.browse.messages(wanted)).messages or [one]
    except SkepError as error:
        if error.code is not Code.GROUP_NOT_FOUND or named is not None:
            raise
        return MessageState.PENDING
    return seen.state if seen.seq == one.seq else None


async def delete(door: QueenDoor, call: Call) -> Answer:
    """Delete a message that is not settled, for all groups."""
    message = await message_of(door.engine, call, Verb.ADMIN)
    done = await delete_message(door.engine, call, message.queue, message.seq, message.id)
    return json_answer(
        {"success": True, "deleted": True, "transactionId": call.path("transaction"), "groups": done.groups}
    )


def _stored(one: StoredMessage) -> QueenStored:
    id_ = id_text(one.id)
    return QueenStored(
        id=id_, transaction_id=one.transaction_id or id_, trace_id=id_text(one.trace_id), queue=one.queue.name,
        queue_name=one.queue.name, partition=one.partition, partition_name=one.partition,
        partition_id=write_id(PartitionName(one.queue.tenant, one.queue.name, one.partition)),
        created_at=to_datetime(one.created_at), priority=one.priority, payload_bytes=one.payload_bytes,
        status=None if one.state is None else _WORDS[one.state],
    )  # fmt: skip
