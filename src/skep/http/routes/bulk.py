"""`POST /api/v1/push` with an Arrow stream for a body.

A stream with only partitions and payloads goes to the store as columns, without a Python object per message. A stream
with more columns (ids, headers, times, several queues) is pushed message by message, within the limits of a push.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from http import HTTPStatus

from skep.engine import Engine
from skep.errors import Code, SkepError
from skep.http import pushing
from skep.http.producer import stamp, stamped_messages
from skep.http.request.call import Answer, Call, json_answer
from skep.model import NewMessage, QueueKey
from skep.observe.metrics import Meter
from skep.wire.log import BulkPushResponse
from skep.wire.messages import QueueDepth

ENVELOPE_BYTES = 16 * 1024 * 1024
"""The bytes that partitions, ids and Arrow's own data may add to the payloads."""


async def read_body(engine: Engine, call: Call) -> bytes:
    """The whole stream, as it came."""
    name = call.query.get("queue")
    if name is not None:
        call.queue(name)
    return await call.body(most_bytes(engine))


def most_bytes(engine: Engine) -> int:
    """How long a stream may be."""
    return engine.settings.limits.bulk_bytes + ENVELOPE_BYTES


async def push(engine: Engine, meter: Meter, call: Call, body: bytes) -> Answer:
    """Push a stream, whole or not at all."""
    try:
        from skep.engine.bulk import PLAIN_COLUMNS
        from skep.http.arrow import messages_of, read_stream
    except ModuleNotFoundError:
        raise SkepError(Code.UNSUPPORTED_MEDIA_TYPE, "Arrow needs the extra: pip install 'skep[arrow]'") from None

    name = call.query.get("queue")
    batch = await asyncio.to_thread(read_stream, body, most_bytes(engine))
    if name is None or not PLAIN_COLUMNS.issuperset(batch.schema.names) or names_messages(engine, name, call.tenant):
        limit = engine.settings.limits.push_messages
        if batch.num_rows > limit:
            raise SkepError(
                Code.INVALID_REQUEST,
                f"with more columns than partition and payload, or to a queue with an idempotency key, a stream has at "
                f"most {limit} messages",
            )
        messages = await asyncio.to_thread(messages_of, batch, name, call.tenant, most_bytes(engine))
        check_queues(call, messages)
        messages = stamped_messages(messages, call.principal)
        try:
            outcome = await engine.push(messages)
        except SkepError as error:
            pushing.count_misfits(meter, messages, error)
            raise
        pushing.count_pushed(meter, messages, outcome)
        return pushing.answer(outcome)
    try:
        appended = await engine.push_columns(QueueKey(name, call.tenant), batch, stamp(call.principal))
    except SkepError as error:
        if error.code is Code.MESSAGE_INVALID:
            meter.known_queue(call.tenant, name).refused += batch.num_rows
        raise
    meter.queue(call.tenant, name).pushed += batch.num_rows
    depth = QueueDepth(appended.depth.depth, appended.depth.remaining)
    told = BulkPushResponse(True, batch.num_rows, appended.first_seq, appended.last_seq, {name: depth})
    return json_answer(told, HTTPStatus.CREATED)


def check_queues(call: Call, messages: Sequence[NewMessage]) -> None:
    """Refuse messages for a queue that may not be pushed to."""
    for key in {message.queue: None for message in messages}:
        call.check(key)


def names_messages(engine: Engine, queue: str, tenant: str) -> bool:
    """Whether messages of a queue get a transaction id, and so cannot be pushed as columns."""
    return engine.declared is not None and engine.declared.names_messages(QueueKey(queue, tenant))
