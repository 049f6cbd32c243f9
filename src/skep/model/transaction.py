"""Transactions as data: settlements, pushes, effects on entities and receipts that are committed together or not at all (I15)."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

import msgspec
from msgspec import Struct, field

from skep.errors import Code
from skep.model.message import NewMessage, PushBatch, PushOutcome
from skep.model.queue import QueueKey
from skep.model.record import Effect, Receipt
from skep.model.settlement import Settlement, SettleResult

FINGERPRINT_BYTES = 16
_encode = msgspec.msgpack.Encoder().encode


class Transaction(Struct, frozen=True):
    """Settlements, pushes, effects and receipts that happen together or not at all (I15).

    Several effects on one entity follow one another: each starts from the version after the one before it.
    With a ``fingerprint``, the store remembers the outcome for a while, by the token of the first settlement.
    """

    settlements: list[Settlement]
    push: PushBatch
    effects: list[Effect] = field(default_factory=list)
    receipts: list[Receipt] = field(default_factory=list)
    fingerprint: bytes = b""


class TransactionOutcome(Struct, frozen=True):
    """Whether the transaction was committed. If not, the results or the conflict give the reason.

    ``conflict`` is RECEIPT_EXISTS or ENTITY_CHANGED; ``conflict_at`` is the index of the first receipt or effect in conflict.
    ``repeated``: the transaction was committed before, and this is the first answer again.
    """

    committed: bool
    settled: list[SettleResult]
    pushed: PushOutcome
    conflict: Code | None = None
    conflict_at: int | None = None
    repeated: bool = False


def fingerprint_of(
    settlements: Sequence[Settlement],
    messages: Sequence[NewMessage],
    effects: Sequence[Effect],
    receipts: Sequence[Receipt],
) -> bytes:
    """A digest that is equal for two tries of the same transaction, and differs from that of any other transaction.

    It leaves out values that each try gets anew: jitter, the expiry of receipts, and headers, which carry the trace of the request.
    """
    said = [
        (_named(s.queue), s.group, s.partition, s.seq, s.token, s.outcome, s.error, s.retry, s.retry_at)
        for s in settlements
    ]
    pushed = [
        (_named(m.queue), m.partition, m.transaction_id, m.content_type, m.deliver_at, m.priority, m.payload)
        for m in messages
    ]
    recorded = [(receipt.key, receipt.answer) for receipt in receipts]
    return blake2b(_encode((said, pushed, list(effects), recorded)), digest_size=FINGERPRINT_BYTES).digest()


def _named(key: QueueKey) -> dict[str, str]:
    return {"name": key.name, "tenant": key.tenant}
