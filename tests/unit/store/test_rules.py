"""The rules of time that both stores share, by themselves."""

from __future__ import annotations

from skep.clock import Instant
from skep.model import Outcome, QueueKey, QueueSettings, Retry, Seq, Settlement, Token
from skep.store.rules import backoff_micros, retry_time

SETTINGS = QueueSettings(initial_backoff_ms=1, max_backoff_ms=5)
NOW = Instant(1_000)


def test_the_wait_for_a_retry_doubles_up_to_its_bound() -> None:
    waits = [backoff_micros(SETTINGS, attempts, 0.0) for attempts in (1, 2, 3, 4, 10_000)]

    assert waits == [1_000, 2_000, 4_000, 5_000, 5_000]


def test_a_retry_time_in_the_past_means_now() -> None:
    nack = Settlement(
        queue=QueueKey("q"), partition="p", seq=Seq(1), token=Token(b"t" * 16), outcome=Outcome.NACK, retry=Retry.AT,
        retry_at=Instant(NOW - 1),
    )  # fmt: skip

    assert retry_time(SETTINGS, nack, 1, NOW) == NOW
