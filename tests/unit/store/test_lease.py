"""The lease state machine by itself: decisions of `skep.store.lease` that need no store."""

from __future__ import annotations

from typing import Any

from skep.clock import Instant
from skep.errors import Code
from skep.model import DeadReason, Outcome, QueueKey, QueueSettings, Retry, Seq, Settlement, SettleStatus, Token
from skep.store.lease import (
    COMPLETED,
    COMPLETED_FREES_NONE,
    Effects,
    Lease,
    LeasedSet,
    lose,
    release,
    renew,
    run_out,
    run_out_set,
    settle_lease,
    settle_sets,
    still_there,
    undo_delivery,
)

QUEUE = QueueKey("q")
TOKEN = Token(b"t" * 16)
NOW = Instant(1_000)
THREE_ATTEMPTS = QueueSettings(max_attempts=3)


def lease(**changes: Any) -> Lease:
    """Messages 1, 2 and 4 under a lease, for the first time, and two more pending."""
    fields: dict[str, Any] = {
        "partition": "p", "delivered_seq": 4, "pending": 2, "open": [1, 2, 4], "leased": 3, "attempts": 1, "token": TOKEN,
        "leased_at": 900, "ready_at": 2_000, "oldest_at": 10, "newest_at": 20, "last_error": None, "consumer": None,
    }  # fmt: skip
    return Lease(**fields | changes)


def said(seq: int, outcome: Outcome = Outcome.ACK, error: str | None = None) -> Settlement:
    return Settlement(
        queue=QUEUE, partition="p", seq=Seq(seq), token=TOKEN, outcome=outcome, retry=Retry.NOW, error=error
    )


def settle(held: Lease, *items: Settlement, settings: QueueSettings = THREE_ATTEMPTS) -> tuple[list[Any], Effects]:
    effects = Effects()
    return settle_lease(held, items, settings, NOW, effects), effects


def test_an_ack_of_a_part_keeps_the_lease_and_frees_nothing() -> None:
    held = lease()
    results, effects = settle(held, said(1))

    assert results == [COMPLETED_FREES_NONE]
    assert (held.open, held.leased, held.token, effects.completed) == ([2, 4], 2, TOKEN, 1)


def test_the_last_ack_frees_the_partition() -> None:
    held = lease()
    results, _ = settle(held, said(1), said(2), said(4))

    assert results == [COMPLETED] * 3
    assert (held.open, held.token, held.attempts, held.leased_at) == ([], None, 0, 0)


def test_a_nack_ends_the_lease_for_all_that_is_left() -> None:
    held = lease()
    results, effects = settle(held, said(1), said(4, Outcome.NACK, "no"))

    assert [result.status for result in results] == [SettleStatus.COMPLETED, SettleStatus.RETRYING]
    assert (held.open, held.leased, held.token, held.is_resting) == ([2, 4], 0, None, True)
    assert (held.attempts, held.last_error) == (1, None)  # the head is another one, which nobody nacked
    assert [(one.seq, one.outcome) for one in effects.failures] == [(4, "retried")]
    assert [(one.messages, one.completed, one.outcome) for one in effects.endings] == [(3, 1, "retried")]


def test_of_two_words_on_one_message_the_first_counts() -> None:
    results, effects = settle(lease(), said(1), said(1, Outcome.REJECT))

    assert [result.code for result in results] == [None, Code.NOT_IN_LEASE]
    assert not effects.burials


def test_a_nack_too_many_buries() -> None:
    held = lease(open=[1, 2], leased=1, attempts=3)
    results, effects = settle(held, said(1, Outcome.NACK, "no"))

    assert [result.status for result in results] == [SettleStatus.DEAD]
    assert [(one.seq, one.reason, one.attempts) for one in effects.burials] == [(1, DeadReason.MAX_ATTEMPTS, 3)]
    assert (held.open, held.attempts) == ([2], 1)


def test_a_lease_that_ran_out_for_the_last_time_buries_its_head_alone() -> None:
    held, effects = lease(attempts=3, last_error="no"), Effects()
    run_out(held, THREE_ATTEMPTS, effects)

    assert [(one.seq, one.error) for one in effects.burials] == [(1, "no")]
    assert (held.open, held.attempts, held.token, effects.retried) == ([2, 4], 1, None, 2)
    assert held.last_error is None  # that was the error of the buried one


def test_a_lease_that_reached_nobody_is_as_if_it_had_not_been() -> None:
    held, effects = lease(), Effects()
    items = [said(1, Outcome.ACK_THROUGH), *(said(seq, Outcome.RELEASE) for seq in (1, 2, 4))]
    results = undo_delivery(held, items, 3, NOW, effects)

    assert [result.code for result in results] == [Code.NOT_IN_LEASE, None, None, None]
    assert (held.delivered_seq, held.pending, held.open, held.attempts) == (0, 5, [], 0)


def test_a_return_for_the_second_time_counts_no_attempt() -> None:
    held = lease(open=[1, 2], leased=1, attempts=2)
    undo_delivery(held, [said(1, Outcome.RELEASE)], 2, NOW, Effects())

    assert (held.attempts, held.open, held.ready_at, held.is_resting) == (1, [1, 2], NOW, True)


def test_a_gap_behind_the_first_cannot_be_undone() -> None:
    assert still_there(lease(), [1, 2, 4]) == 3
    assert still_there(lease(), [1, 4]) == 2
    assert still_there(lease(), [1, 2, 3, 4]) is None


def test_what_left_the_log_counts_as_expired() -> None:
    held, effects = lease(attempts=2, last_error="no"), Effects()
    release(held, head_stays=True)
    held.leased_at = NOW

    assert lose(held, {2, 4}, effects)
    assert (held.open, held.attempts, held.last_error, held.is_resting, effects.expired) == ([2, 4], 1, None, True, 1)
    assert not lose(held, {2}, effects)
    assert (held.open, held.attempts, effects.expired) == ([2], 1, 2)


def test_a_renewal_of_a_lease_that_had_run_out_begins_anew() -> None:
    live, late = lease(), lease(ready_at=NOW)
    for held in (live, late):
        renew(held, Instant(9_000), NOW)

    assert (live.leased_at, live.ready_at) == (900, 9_000)
    assert (late.leased_at, late.ready_at) == (NOW, 9_000)


def some(seqs: list[int], attempts: int = 1) -> LeasedSet:
    return LeasedSet("p", seqs, attempts, TOKEN, 900, None, None)


def test_in_a_set_every_message_is_settled_alone() -> None:
    effects = Effects()
    items = [said(1), said(2, Outcome.NACK, "no"), said(9), said(8, Outcome.ACK_THROUGH)]
    results, settled = settle_sets([some([1, 2, 3]), some([8])], items, THREE_ATTEMPTS, NOW, effects)

    assert [result.code for result in results] == [None, None, Code.NOT_IN_LEASE, None]
    assert results[3].messages == 2
    assert [(one.fates, one.left) for one in settled] == [
        ({1: "completed", 2: "retried", 3: "completed"}, []),
        ({8: "completed"}, []),
    ]
    assert [seq for seq, _, _ in settled[0].retries] == [2]


def test_a_set_that_ran_out_for_the_last_time_is_buried_whole() -> None:
    again, over, effects = some([1, 2]), some([5, 6], attempts=3), Effects()

    assert not run_out_set(again, THREE_ATTEMPTS, effects)
    assert run_out_set(over, THREE_ATTEMPTS, effects)
    assert (again.seqs, again.token, over.seqs, effects.retried) == ([1, 2], None, [], 2)
    assert [one.seq for one in effects.burials] == [5, 6]
