"""`POST /api/v1/push` with an Arrow stream for a body.

A stream with only partitions and payloads goes to the store as columns, without a Python object per message. A stream
with more columns (ids, headers, times, several queues) is pushed message by message, within the limits of a push.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from typing import TYPE_CHECKING

from skep.engine import Engine
from skep.errors import Code, SkepError
from skep.http import pushing
from skep.http.producer import stamp, stamped_messages
from skep.http.request.call import Answer, Call, json_answer
from skep.model import NewMessage, QueueKey
from skep.observe.metrics import Meter
from skep.wire.log import ARROW, BulkPushResponse
from skep.wire.messages import QueueDepth

if TYPE_CHECKING:  # the extra `arrow` need not be installed
    import pyarrow as pa

ENVELOPE_BYTES = 16 * 1024 * 1024
"""The bytes that partitions, ids and Arrow's own data may add to the payloads."""


@contextmanager
def arrow_extra() -> Iterator[None]:
    """Import modules that need pyarrow within this; UNSUPPORTED_MEDIA_TYPE when it is not installed."""
    try:
        yield
    except ModuleNotFoundError:
        raise SkepError(Code.UNSUPPORTED_MEDIA_TYPE, "Arrow needs the extra: pip install 'skep[arrow]'") from None


async def read_body(engine: Engine, call: Call) -> bytes:
    """The whole body, which must be a stream."""
    name = call.query.get("queue")
    if name is not None:
        call.queue(name)
    if call.header(b"content-type") != ARROW.encode():
        raise SkepError(Code.UNSUPPORTED_MEDIA_TYPE, f"the body must be {ARROW}")
    return await call.body(most_bytes(engine))


def most_bytes(engine: Engine) -> int:
    """How long a stream may be."""
    return engine.settings.limits.bulk_bytes + ENVELOPE_BYTES


async def read_stream(engine: Engine, call: Call, body: bytes) -> tuple[pa.RecordBatch, QueueKey | None]:
    """The batch of a stream, and the queue that it goes to as columns; None when it goes message by message."""
    with arrow_extra():
        from skep.engine.bulk import PLAIN_COLUMNS
        from skep.http import arrow

    batch = await asyncio.to_thread(arrow.read_stream, body, most_bytes(engine))
    name = call.query.get("queue")
    if name is None or not PLAIN_COLUMNS.issuperset(batch.schema.names):
        return batch, None
    key = QueueKey(name, call.tenant)
    # Messages of such a queue get a transaction id, which columns cannot carry.
    is_named = engine.declared is not None and engine.declared.names_messages(key)
    return batch, None if is_named else key


async def read_messages(engine: Engine, call: Call, batch: pa.RecordBatch) -> list[NewMessage]:
    """The messages of a stream, if the caller may push to their queues."""
    from skep.http.arrow import messages_of

    name = call.query.get("queue")
    messages = await asyncio.to_thread(messages_of, batch, name, call.tenant, most_bytes(engine))
    for key in {message.queue: None for message in messages}:
        call.check(key)
    return stamped_messages(messages, call.principal)


async def push(engine: Engine, meter: Meter, call: Call, body: bytes) -> Answer:
    """Push a stream, whole or not at all."""
    batch, key = await read_stream(engine, call, body)
    if key is None:
        limit = engine.settings.limits.push_messages
        if batch.num_rows > limit:
            raise SkepError(
                Code.INVALID_REQUEST,
                f"with more columns than partition and payload, or to a queue with an idempotency key, a stream has at "
                f"most {limit} messages",
            )
        messages = await read_messages(engine, call, batch)
        try:
            outcome = await engine.push(messages)
        except SkepError as error:
            pushing.count_misfits(meter, messages, error)
            raise
        pushing.count_pushed(meter, messages, outcome)
        return pushing.answer(outcome)
    try:
        appended = await engine.push_columns(key, batch, stamp(call.principal))
    except SkepError as error:
        if error.code is Code.MESSAGE_INVALID:
            meter.known_queue(key.tenant, key.name).refused += batch.num_rows
        raise
    meter.queue(key.tenant, key.name).pushed += batch.num_rows
    depth = QueueDepth(appended.depth.depth, appended.depth.remaining)
    told = BulkPushResponse(True, batch.num_rows, appended.first_seq, appended.last_seq, {key.name: depth})
    return json_answer(told, HTTPStatus.CREATED)
