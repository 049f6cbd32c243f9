"""`dlq`: the dead letters of a queue. With us they are messages of a queue of their own; Queen's clients see them with the queue."""

from __future__ import annotations

from http import HTTPStatus

import msgspec

from skep.errors import Code, SkepError
from skep.http import dead_letter_requests
from skep.http.queen.door import QueenDoor
from skep.http.queen.finding import offset_page
from skep.http.queen.names import PartitionName, read_partition, write_id
from skep.http.queen.popping import instant_of
from skep.http.queen.shapes import QueenLetter, QueenLetters
from skep.http.request import parameters
from skep.http.request.call import Answer, Call, json_answer
from skep.http.views import json_payload
from skep.ids import id_text, parse_id
from skep.model import DeadLetter, DeadLetterFilter, QueueKey, Seq
from skep.model.key import Verb
from skep.wire.times import to_datetime


async def list_letters(door: QueenDoor, call: Call) -> Answer:
    """List the dead letters of a queue, oldest first."""
    query = call.query
    offset, limit = offset_page(query)
    wanted = DeadLetterFilter(
        queue=QueueKey(parameters.needed(query, "queue"), call.tenant),
        partition=query.get("partition") or None,
        group=query.get("consumerGroup") or None,
        since=instant_of(query["from"], "from") if query.get("from") else None,
        until=instant_of(query["to"], "to") if query.get("to") else None,
    )
    await call.hold(door.answers, dead_letter_requests.page_bytes(door.engine))
    try:
        found = await dead_letter_requests.meant(door.engine, wanted, call)
    except SkepError as error:
        if error.code is not Code.QUEUE_NOT_FOUND:
            raise
        found = None
    if found is None:
        return json_answer(QueenLetters([], 0, limit, offset))
    total = await door.engine.dead_letters.count(found)
    letters = await _page(door, found, offset, limit) if offset < total else []
    return json_answer(QueenLetters([_letter(one) for one in letters], total, limit, offset))


async def _page(door: QueenDoor, wanted: DeadLetterFilter, offset: int, limit: int) -> list[DeadLetter]:
    """The letters from an offset on; a page of large ones is short."""
    engine, after = door.engine, None
    left = offset
    while left:
        passed = await engine.dead_letters.page(
            wanted, after=after, limit=left, max_bytes=engine.settings.limits.page_bytes
        )
        if not passed:
            return []
        left, after = left - len(passed), passed[-1].seq
    return await engine.dead_letters.page(wanted, after=after, limit=limit, max_bytes=engine.settings.limits.page_bytes)


def _letter(one: DeadLetter) -> QueenLetter:
    id_ = id_text(one.id)
    created, failed = to_datetime(one.created_at), to_datetime(one.failed_at)
    return QueenLetter(
        id=id_, message_id=id_, transaction_id=one.transaction_id or id_, trace_id=id_text(one.trace_id),
        queue=one.source_queue, queue_name=one.source_queue, partition=one.partition, partition_name=one.partition,
        partition_id=write_id(PartitionName(one.queue.tenant, one.source_queue, one.partition)), consumer_group=one.group,
        data=json_payload(one.payload, one.content_type), error_message=one.error or one.reason, reason=one.reason,
        retry_count=max(0, one.attempts - 1), created_at=created, original_created_at=created, moved_to_dlq_at=failed,
    )  # fmt: skip


async def retry(door: QueenDoor, call: Call) -> Answer:
    """Send a dead letter back to its queue, for the group that gave it up."""
    place = read_partition(call.path("partition"), call, Verb.ADMIN)
    name = call.path("transaction")
    wanted = DeadLetterFilter(queue=place.key, partition=place.partition)
    found = await dead_letter_requests.meant(door.engine, wanted, call)
    named = None if found is None else await _named(door, found, name)
    done = None if named is None else await door.engine.dead_letters.replay(named)
    if done is None or not done.count:
        raise SkepError(
            Code.MESSAGE_NOT_FOUND,
            f"no dead letter of partition {place.partition!r} of queue {place.queue!r} has the transaction id {name[:100]!r}",
        )
    call.note(count=done.count, target=f"dead letters {name[:100]} of queue {place.queue}")
    return json_answer({"success": True, "retried": done.count}, HTTPStatus.OK)


async def _named(door: QueenDoor, wanted: DeadLetterFilter, name: str) -> DeadLetterFilter | None:
    """The letters with a transaction id, or the one with an id."""
    found = await door.engine.browse.with_transaction_id(name, wanted.queue.tenant)
    if seqs := [Seq(one.seq) for one in found if one.queue == wanted.queue and one.partition == wanted.partition]:
        return msgspec.structs.replace(wanted, seqs=seqs)
    try:
        return msgspec.structs.replace(wanted, ids=[parse_id(name)])
    except ValueError:
        return None


async def bury(door: QueenDoor, call: Call) -> Answer:  # noqa: ARG001 - it is refused whatever it names
    """Refuse to give a message up that nobody holds: attempts are exact, and only a delivery ends in the dead letters."""
    read_partition(call.path("partition"), call, Verb.ADMIN)
    raise SkepError(
        Code.INVALID_REQUEST,
        "a message goes to the dead letters by whoever holds it: pop it, and acknowledge it with the status dlq",
    )
