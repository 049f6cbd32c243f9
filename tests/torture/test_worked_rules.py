"""What workers did is judged by its effects: events, follow-ups, and what their receiver got."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from skep.clock import Instant, ManualClock
from skep.ids import Id, IdMint
from skep.model import (
    GroupStats,
    NewMessage,
    PushBatch,
    PushOutcome,
    PushResult,
    PushStatus,
    QueueKey,
    QueueStats,
    Seq,
    StoredMessage,
)
from skep.model.stats import Rates
from torture.check import check
from torture.history import Call, History
from torture.receiver import Receipt

COUNTED = QueueKey("round0-counted")
SENT = QueueKey("round0-sent")


class Notes:
    """A history that is written by hand: three messages of two partitions, and what became of them."""

    def __init__(self, queue: QueueKey) -> None:
        self.queue = queue
        self.ticks = itertools.count()
        self.calls: list[Call] = []
        self.ids: list[Id] = IdMint(ManualClock()).mint_many(3)
        self.messages = [NewMessage(queue, f'{{"name":"{name}"}}'.encode(), p) for name, p in ("ap", "bp", "cq")]
        results = [PushResult(PushStatus.STORED, id_, Seq(seq)) for seq, id_ in enumerate(self.ids, 1)]
        self.note("push", [PushBatch(self.messages, self.ids)], [PushOutcome(results, {})])

    def note(self, verb: str, request: Any, answer: Any, *, is_answered: bool = True) -> None:
        started = next(self.ticks)
        ended = next(self.ticks) if is_answered else None
        self.calls.append(Call("client", verb, started, ended, Instant(0), request, answer))

    def post(self, place: int, *, is_taken: bool = True) -> None:
        receipt = Receipt(self.queue, self.ids[place], self.messages[place].payload)
        self.note("receive", receipt, is_taken, is_answered=is_taken)

    def broken(self) -> list[str]:
        history = History(self.calls, drained=True, worked=frozenset((self.queue,)))
        return [violation.promise for violation in check(history)]


@pytest.mark.parametrize(
    ("effects", "broken"),
    [
        ({"p": ["a", "b"], "q": ["c"]}, []),
        ({"p": ["a", "b", "b"], "q": ["c"]}, ["I15"]),
        ({"p": ["a", "b"], "q": []}, ["I15"]),
        ({"p": ["b", "a"], "q": ["c"]}, ["I4"]),
        ({"p": ["a", "b", "c"], "q": []}, ["I4"]),
        ({"p": ["a", "b"], "q": ["c", "never pushed"]}, ["I2"]),
    ],
)
def test_I15_every_message_takes_effect_once_and_in_order(effects: dict[str, list[str]], broken: list[str]) -> None:
    notes = Notes(COUNTED)
    notes.note("effects", (COUNTED, "events"), effects)

    assert notes.broken() == broken


def test_I4_a_message_is_posted_once_those_before_it_were_taken() -> None:
    good, bad = Notes(SENT), Notes(SENT)
    good.post(0, is_taken=False)
    for place in (2, 0, 1):
        good.post(place)
    bad.post(0, is_taken=False)
    for place in (1, 0, 2):
        bad.post(place)

    assert good.broken() == []
    assert bad.broken() == ["I4"]


def test_I9_every_message_is_taken_in_the_end() -> None:
    notes = Notes(SENT)
    notes.post(0)
    notes.post(1)
    notes.post(2, is_taken=False)

    assert notes.broken() == ["I9"]


def test_I2_only_what_was_pushed_is_posted() -> None:
    notes = Notes(SENT)
    for place in range(3):
        notes.post(place)
    notes.note("receive", Receipt(SENT, notes.ids[2], b"changed"), True)

    assert notes.broken() == ["I2"]


def test_I3_what_a_webhook_got_twice_is_in_the_log_once() -> None:
    notes = Notes(QueueKey("round0-hooked"))
    first, second, _ = notes.ids
    twice = notes.messages[0].payload
    notes.note("hook", twice, None)
    log = [stored(notes.queue, seq, id_, twice) for seq, id_ in ((1, first), (2, second))]
    notes.note("log", notes.queue, [*log, stored(notes.queue, 3, notes.ids[2], notes.messages[2].payload)])

    assert notes.broken() == ["I3"]


def stored(queue: QueueKey, seq: int, id_: Id, payload: bytes) -> StoredMessage:
    return StoredMessage(
        queue=queue, seq=Seq(seq), partition="p", id=id_, transaction_id=None, trace_id=id_, headers=None,
        content_type=None, payload=payload, payload_bytes=len(payload), priority=0, created_at=Instant(0),
    )  # fmt: skip


def test_I8_what_workers_settle_is_no_skip() -> None:
    notes = Notes(COUNTED)
    notes.note("stats", COUNTED, figures(COUNTED, pending=0))

    assert notes.broken() == []


def test_I9_the_last_look_at_a_queue_tells_what_is_left() -> None:
    notes = Notes(COUNTED)
    notes.note("stats", COUNTED, figures(COUNTED, pending=3))
    notes.note("stats", COUNTED, figures(COUNTED, pending=0))
    notes.calls.reverse()

    assert notes.broken() == []


def figures(queue: QueueKey, *, pending: int) -> QueueStats:
    done = 3 - pending
    group = GroupStats(
        queue=queue, group="g", pushed=3, completed=done, pending=pending, in_flight=0, dead=0, expired=0,
        progress_seq=Seq(done), start_seq=Seq(0), retried=0, partitions_pending=0, partitions_leased=0, oldest_at=None, lag_seconds=0,
        rates=Rates(), created_at=Instant(0), active_at=Instant(0), inactive_seconds=0,
    )  # fmt: skip
    return QueueStats(
        queue=queue, first_seq=Seq(1), last_seq=Seq(3), depth=3, scheduled=0, dead_letters=0, in_flight=0,
        oldest_age_seconds=0, rates=Rates(), groups=[group],
    )  # fmt: skip


@pytest.mark.parametrize(
    ("results", "broken"),
    [
        ([1, 2, 3], []),
        ([1, 2], ["I13"]),
        ([1, 2, 4], ["I13"]),
    ],
)
def test_I13_a_completed_operation_has_stored_what_it_says(results: list[int], broken: list[str]) -> None:
    notes = Notes(QueueKey("round0-keyed"))
    stored_as = {
        id_: PushResult(PushStatus.STORED, id_, Seq(seq)) for id_, seq in zip(notes.ids, results, strict=False)
    }
    notes.note("operation", PushBatch(notes.messages, notes.ids), stored_as)
    log = zip(notes.ids, notes.messages, strict=True)
    notes.note("log", notes.queue, [stored(notes.queue, seq, id_, m.payload) for seq, (id_, m) in enumerate(log, 1)])

    assert notes.broken() == broken
