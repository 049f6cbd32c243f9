"""Kept answers by themselves: which settlement is a repeat."""

from __future__ import annotations

from msgspec.structs import replace

from skep.clock import Instant
from skep.model import Outcome, QueueKey, Retry, Seq, Settlement, SettleResult, SettleStatus, Token
from skep.store.outcomes import LeaseHistoryRow, Remembered, kept_answers

TOKEN = Token(b"t" * 16)
RETRY_AT = Instant(5_000)


def test_a_nack_for_another_time_is_no_repeat() -> None:
    nack = Settlement(
        queue=QueueKey("q"), partition="p", seq=Seq(1), token=TOKEN, outcome=Outcome.NACK, retry=Retry.AT, retry_at=RETRY_AT
    )  # fmt: skip
    kept = kept_answers([(nack, SettleResult(SettleStatus.RETRYING, None, RETRY_AT))])
    known = Remembered([LeaseHistoryRow(TOKEN, "p", 1, 1, 0, None, kept)])

    repeated = known.answer(nack, ordered=True)
    assert repeated is not None
    assert (repeated.retry_at, repeated.repeated) == (RETRY_AT, True)
    assert known.answer(replace(nack, retry_at=Instant(RETRY_AT + 1)), ordered=True) is None
