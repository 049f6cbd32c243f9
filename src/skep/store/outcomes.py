"""What settlements and transactions were answered, kept in the lease history, so that a repeat gets the first answer.

Whoever did not get the answer to an ack cannot know whether it happened, and says it again. The row that the lease history gets for
every settlement has the lease's token and what was said under it, so it is as durable as the settlement itself. Only the seqs are added,
where they are not consecutive. It is looked at only when a settlement is refused: with the same token, message and verdict it is a repeat,
changes nothing, and gets the first answer, for a while. Anything else stays refused (I6). An ack of a whole lease leaves a mark there, by
which its repeat is known.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence

import msgspec
from msgspec import Struct

from skep.clock import Instant
from skep.errors import Code
from skep.ids import Id
from skep.model import Outcome, PushOutcome, PushResult, PushStatus, Retry, Seq, Settlement, SettleResult, SettleStatus
from skep.model.transaction import Transaction, TransactionOutcome

REMEMBER_SECONDS = 300
"""For this long a repeated settlement gets the first answer. Clients stop retrying sooner."""
REMEMBERED_LEASES = 20_000
"""A repeat is looked for among this many of the latest ended leases, over all queues."""

LOST = frozenset({Code.STALE_LEASE, Code.NOT_IN_LEASE})
"""Refusals of a settlement that may be a repeat."""

_ACK = "ack"
COMPLETED_BEFORE = SettleResult(SettleStatus.COMPLETED, repeated=True, frees=False)


class SettledMessage(Struct, array_like=True, frozen=True, gc=False):
    """One settlement of one message, and its answer."""

    seq: int
    verdict: str
    status: SettleStatus
    retry_at: int | None
    dead_letter_queue: str | None


class Stored(Struct, array_like=True, frozen=True, gc=False):
    """What a push of a transaction was answered."""

    status: PushStatus
    id: bytes
    seq: int | None
    transaction_id: str | None
    trace_id: bytes | None


class Committed(Struct, array_like=True, frozen=True):
    """A whole transaction: what tells it from any other, and its answers."""

    fingerprint: bytes
    settled: list[SettleResult]
    pushed: list[Stored]


class Mark(Struct, array_like=True, frozen=True, gc=False):
    """An ack of a lease up to a seq. ``messages`` None is every message that its row of the history completed."""

    through: int
    messages: int | None = None


class Kept(Struct, array_like=True, frozen=True):
    """What a row of the history keeps. ``acked`` None is every seq from its first to its last.

    An ack of a whole lease leaves a mark, and its seqs as the lease had them, ``packed`` in 8 bytes each.
    """

    acked: list[int] | None
    said: list[SettledMessage]
    transaction: Committed | None = None
    marks: list[Mark] = []
    packed: bytes | None = None


class Swept(Struct):
    """The seqs of one row that acks of whole leases completed, with a mark for each ack."""

    marks: list[Mark] = []
    seqs: list[int] = []


class EndedLease(Struct, frozen=True):
    """A history row with one of the wanted tokens. ``acked``: its seqs, when ``kept`` has none."""

    token: bytes
    partition: str
    first_seq: int
    last_seq: int
    completed: int
    acked: Sequence[int] | None
    kept: bytes | None


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Kept).decode


def verdict_of(settlement: Settlement) -> str:
    """What makes two settlements of a message the same."""
    if settlement.outcome is not Outcome.NACK:
        return settlement.outcome
    if settlement.retry is Retry.AT:
        return f"nack at {settlement.retry_at}"
    return f"nack {settlement.retry}"


def is_run(seqs: Sequence[int]) -> bool:
    """Whether ascending seqs have no gap, so that the first and the last describe them all."""
    return seqs[-1] - seqs[0] == len(seqs) - 1


def kept_acks(seqs: Sequence[int], marks: Sequence[Mark] = ()) -> bytes | None:
    """What to keep of a settlement that was acks alone, of seqs that rise."""
    if is_run(seqs):
        return _encode(Kept(None, [], marks=list(marks))) if marks else None
    return _encode(Kept(list(seqs), [], marks=list(marks)))


def kept_sweep(through: int, packed: bytes | None) -> bytes:
    """What to keep of one ack of a lease up to a seq; ``packed`` are its seqs, where they have a gap."""
    return _encode(Kept(None, [], marks=[Mark(through)], packed=packed))


def kept_answers(answered: Iterable[tuple[Settlement, SettleResult]], swept: Swept | None = None) -> bytes | None:
    """The record of a settlement of one lease: without refused messages; those of a whole lease are in ``swept``."""
    marks = [] if swept is None else swept.marks
    acked: list[int] = [] if swept is None else list(swept.seqs)
    said: list[SettledMessage] = []
    for settlement, result in answered:
        if result.code is None and settlement.outcome is not Outcome.ACK_THROUGH:
            if settlement.outcome is Outcome.ACK:
                acked.append(settlement.seq)
            else:
                verdict = verdict_of(settlement)
                said.append(
                    SettledMessage(settlement.seq, verdict, result.status, result.retry_at, result.dead_letter_queue)
                )
    acked.sort()
    return _encode(Kept(acked, said, marks=marks)) if said else kept_acks(acked, marks)


def with_transaction(kept: bytes | None, transaction: Transaction, outcome: TransactionOutcome) -> bytes:
    """What to keep of a settlement that is part of a transaction."""
    before = Kept(None, []) if kept is None else _decode(kept)
    pushed = [
        Stored(result.status, result.id, result.seq, result.transaction_id, result.trace_id)
        for result in outcome.pushed.results
    ]
    committed = Committed(transaction.fingerprint, outcome.settled, pushed)
    return _encode(msgspec.structs.replace(before, transaction=committed))


def outcome_for(seq: int, outcome: str, kept: bytes | None) -> str:
    """What a lease's row in the history says of one of its messages: several may have fared differently in one call."""
    if outcome not in ("retried", "dead") or kept is None:
        return outcome
    said = _decode(kept)
    if said.acked is not None and seq in said.acked:
        return "completed"
    for one in said.said:
        if one.seq == seq:
            return "retried" if one.status is SettleStatus.RETRYING else "dead"
    return "returned" if outcome == "retried" else outcome


class Remembered:
    """What was said under some tokens."""

    def __init__(self, rows: Iterable[EndedLease]) -> None:
        self._said: dict[tuple[bytes, int], tuple[str, str, SettleResult]] = {}
        self._swept: dict[tuple[bytes, str, int], int] = {}
        self._transactions: dict[tuple[bytes, bytes], Committed] = {}
        for row in rows:
            kept = Kept(None, []) if row.kept is None else _decode(row.kept)
            for seq in _acked(row, kept):
                self._said[row.token, seq] = (row.partition, _ACK, COMPLETED_BEFORE)
            for mark in kept.marks:
                # In an unordered queue one lease may have several rows.
                place = (row.token, row.partition, mark.through)
                messages = row.completed if mark.messages is None else mark.messages
                self._swept[place] = self._swept.get(place, 0) + messages
            for said in kept.said:
                retry_at = None if said.retry_at is None else Instant(said.retry_at)
                result = SettleResult(said.status, None, retry_at, said.dead_letter_queue, repeated=True, frees=False)
                self._said[row.token, said.seq] = (row.partition, said.verdict, result)
            if kept.transaction is not None:
                self._transactions[row.token, kept.transaction.fingerprint] = kept.transaction

    def answer(self, settlement: Settlement, ordered: bool) -> SettleResult | None:
        """What the same settlement was answered before; None when it was not made."""
        if settlement.outcome is Outcome.ACK_THROUGH:
            messages = self._swept.get((settlement.token, settlement.partition, settlement.seq))
            return None if messages is None else msgspec.structs.replace(COMPLETED_BEFORE, messages=messages)
        found = self._said.get((settlement.token, settlement.seq))
        if found is None or found[1] != verdict_of(settlement):
            return None
        # A lease of an unordered queue is found by its token alone.
        return None if ordered and found[0] != settlement.partition else found[2]

    def outcome(self, transaction: Transaction) -> TransactionOutcome | None:
        """What the same transaction was answered before; None when it was not made."""
        found = self._transactions.get((transaction.settlements[0].token, transaction.fingerprint))
        if found is None:
            return None
        pushed = [
            PushResult(
                one.status, Id(one.id), None if one.seq is None else Seq(one.seq), one.transaction_id,
                None if one.trace_id is None else Id(one.trace_id),
            )
            for one in found.pushed
        ]  # fmt: skip
        return TransactionOutcome(True, found.settled, PushOutcome(pushed, {}), repeated=True)


def _acked(row: EndedLease, kept: Kept) -> Iterable[int]:
    if kept.acked is not None:
        return kept.acked
    if kept.packed is not None:
        return array("q", kept.packed)
    return range(row.first_seq, row.last_seq + 1) if row.acked is None else row.acked


def is_remembered(transaction: Transaction) -> bool:
    """Whether a transaction can be told from others when it comes again: by the token of its first settlement."""
    return bool(transaction.fingerprint and transaction.settlements)
