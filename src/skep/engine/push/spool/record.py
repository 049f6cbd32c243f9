"""A spooled push and its bytes: the whole batch with its ids, so that a retry stores the same messages.

Fields are known by their place, so new fields are only ever added at the end, with a default.
"""

from __future__ import annotations

import msgspec
from msgspec import Struct

from skep.clock import Instant
from skep.ids import Id, id_text
from skep.model import PushBatch, QueueKey, Tried
from skep.model.packed import PackedMessage, packed, unpacked
from skep.model.record import Receipt, ReceiptKey

SCOPE = "spool"
"""The scope of the receipts of spooled pushes."""

Group = tuple[QueueKey, str]
"""A partition of a queue, whose messages are kept in order."""


class _Receipt(Struct, array_like=True, frozen=True):
    scope: str
    key: str
    tenant: str
    answer: bytes
    expires_at: int


class _Tried(Struct, array_like=True, frozen=True):
    since: int
    until: int
    session: str


class _Record(Struct, array_like=True, frozen=True):
    id: bytes
    spooled_at: int
    queues: list[tuple[str, str]]
    messages: list[tuple[int, PackedMessage]]
    """Each with the place of its queue."""
    ids: bytes
    receipt: _Receipt | None = None
    tried: _Tried | None = None


class Record(Struct, frozen=True):
    """A spooled push."""

    id: Id
    spooled_at: Instant
    batch: PushBatch

    @property
    def name(self) -> str:
        """The name of the record in receipts, logs and files."""
        return id_text(self.id)

    def groups(self) -> set[Group]:
        """The partitions of the record."""
        return groups_of(self.batch)


def groups_of(batch: PushBatch) -> set[Group]:
    """The partitions of a batch."""
    return {(message.queue, message.partition) for message in batch.messages}


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(_Record)


def encode(record: Record) -> bytes:
    """The bytes of a record."""
    batch = record.batch
    numbers: dict[QueueKey, int] = {}
    messages = [(numbers.setdefault(m.queue, len(numbers)), packed(m)) for m in batch.messages]
    receipt, tried = batch.receipt, batch.tried
    return _encoder.encode(
        _Record(
            record.id,
            record.spooled_at,
            [(key.name, key.tenant) for key in numbers],
            messages,
            b"".join(batch.ids),
            None
            if receipt is None
            else _Receipt(receipt.key.scope, receipt.key.key, receipt.key.tenant, receipt.answer, receipt.expires_at),
            None if tried is None else _Tried(tried.since, tried.until, tried.session),
        )
    )


def decode(body: bytes) -> Record:
    """The record in these bytes; ValueError when they are damaged."""
    try:
        found = _decoder.decode(body)
    except msgspec.MsgspecError as error:
        raise ValueError(str(error)) from None
    if len(found.ids) != 16 * len(found.messages) or len(found.id) != 16:
        raise ValueError("the number of ids is not that of the messages")
    if any(not 0 <= queue < len(found.queues) for queue, _ in found.messages):
        raise ValueError("a message of a queue that is not named")
    keys = [QueueKey(name, tenant) for name, tenant in found.queues]
    messages = [unpacked(message, keys[queue]) for queue, message in found.messages]
    ids = [Id(found.ids[at : at + 16]) for at in range(0, len(found.ids), 16)]
    kept, tried = found.receipt, found.tried
    receipt = (
        None
        if kept is None
        else Receipt(ReceiptKey(kept.scope, kept.key, kept.tenant), kept.answer, Instant(kept.expires_at))
    )
    attempt = None if tried is None else Tried(Instant(tried.since), Instant(tried.until), tried.session)
    return Record(Id(found.id), Instant(found.spooled_at), PushBatch(messages, ids, receipt, attempt))
