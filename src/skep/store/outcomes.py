"""The answers of settlements and transactions, kept in the lease history, so that a repeat gets the first answer (idempotence).

A caller that got no answer to an ack repeats it. Every settlement writes a row of the lease history in its own transaction, with the
lease's token and the answer. For plain acks only the seqs are added, and only where they have a gap. The row is read only when a
settlement is refused: one with the same token, message and verdict is a repeat. For a while a repeat changes nothing and gets the first
answer. Any other stays refused (I6). An ack of a whole lease leaves a mark, which identifies its repeat.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence

import msgspec
from msgspec import Struct

from skep.clock import Instant
from skep.errors import Code
from skep.ids import Id
from skep.model import (
    Outcome,
    PushOutcome,
    PushResult,
    PushStatus,
    Retry,
    Seq,
    Settlement,
    SettleResult,
    SettleStatus,
)
from skep.model.transaction import Transaction, TransactionOutcome

REMEMBER_SECONDS = 300
"""How long a repeated settlement gets the first answer. Clients stop retrying sooner."""
REMEMBERED_LEASES = 20_000
"""How many of the latest ended leases, over all queues, are searched for a repeat."""

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
    """The answer for one pushed message of a transaction."""

    status: PushStatus
    id: bytes
    seq: int | None
    transaction_id: str | None
    trace_id: bytes | None


class Committed(Struct, array_like=True, frozen=True):
    """A committed transaction: its fingerprint and its answers."""

    fingerprint: bytes
    settled: list[SettleResult]
    pushed: list[Stored]


class Mark(Struct, array_like=True, frozen=True, gc=False):
    """An ack of a lease up to a seq. ``messages`` is how many it completed; None: all completed messages of its history row."""

    through: int
    messages: int | None = None


class Kept(Struct, array_like=True, frozen=True):
    """The answers that a history row keeps. ``acked`` None: every seq from the row's first to its last, unless ``packed`` has the seqs.

    An ack of a whole lease leaves a mark. ``packed`` are the seqs of the lease, in 8 bytes each.
    """

    acked: list[int] | None
    said: list[SettledMessage]
    transaction: Committed | None = None
    marks: list[Mark] = []
    packed: bytes | None = None


class Swept(Struct):
    """The seqs of one history row that acks of the whole lease completed, with a mark for each ack."""

    marks: list[Mark] = []
    seqs: list[int] = []


class LeaseHistoryRow(Struct, frozen=True):
    """A history row with one of the wanted tokens. ``acked``: its seqs, when ``kept`` has none and they have a gap."""

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
    """The verdict of a settlement. A repeat has the same verdict."""
    if settlement.outcome is not Outcome.NACK:
        return settlement.outcome
    if settlement.retry is Retry.AT:
        return f"nack at {settlement.retry_at}"
    return f"nack {settlement.retry}"


def is_run(seqs: Sequence[int]) -> bool:
    """Whether ascending seqs have no gap, so that the first and the last describe them all."""
    return seqs[-1] - seqs[0] == len(seqs) - 1


def kept_acks(seqs: Sequence[int], marks: Sequence[Mark] = ()) -> bytes | None:
    """The record of a settlement of acks alone, with ascending seqs; None when its history row says it all."""
    if is_run(seqs):
        return _encode(Kept(None, [], marks=list(marks))) if marks else None
    return _encode(Kept(list(seqs), [], marks=list(marks)))


def kept_sweep(through: int, packed: bytes | None) -> bytes:
    """The record of one ack of a lease up to a seq; ``packed`` are the seqs, if they have a gap."""
    return _encode(Kept(None, [], marks=[Mark(through)], packed=packed))


def kept_answers(answered: Iterable[tuple[Settlement, SettleResult]], swept: Swept | None = None) -> bytes | None:
    """The record of a settlement of one lease. Refused settlements are left out; ``swept`` has those of acks of the whole lease."""
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
    """The record of a settlement, with the transaction that it is part of."""
    before = Kept(None, []) if kept is None else _decode(kept)
    pushed = [
        Stored(result.status, result.id, result.seq, result.transaction_id, result.trace_id)
        for result in outcome.pushed.results
    ]
    committed = Committed(transaction.fingerprint, outcome.settled, pushed)
    return _encode(msgspec.structs.replace(before, transaction=committed))


def outcome_for(seq: int, outcome: str, kept: bytes | None) -> str:
    """The outcome of one message, from its lease's history row: messages of one call may have different outcomes."""
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
    """The kept answers of some tokens."""

    def __init__(self, rows: Iterable[LeaseHistoryRow]) -> None:
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
        """The first answer of a repeated settlement; None when it is no repeat."""
        if settlement.outcome is Outcome.ACK_THROUGH:
            messages = self._swept.get((settlement.token, settlement.partition, settlement.seq))
            return None if messages is None else msgspec.structs.replace(COMPLETED_BEFORE, messages=messages)
        found = self._said.get((settlement.token, settlement.seq))
        if found is None or found[1] != verdict_of(settlement):
            return None
        # In an unordered queue the token alone identifies the lease.
        return None if ordered and found[0] != settlement.partition else found[2]

    def outcome(self, transaction: Transaction) -> TransactionOutcome | None:
        """The first answer of a repeated transaction; None when it is no repeat."""
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


def _acked(row: LeaseHistoryRow, kept: Kept) -> Iterable[int]:
    if kept.acked is not None:
        return kept.acked
    if kept.packed is not None:
        return array("q", kept.packed)
    return range(row.first_seq, row.last_seq + 1) if row.acked is None else row.acked


def is_remembered(transaction: Transaction) -> bool:
    """Whether a repeat of the transaction can be recognised: it has a fingerprint, and a settlement whose token finds the row."""
    return bool(transaction.fingerprint and transaction.settlements)
