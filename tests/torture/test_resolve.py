"""What became of pushes whose answers were lost is found by their payloads."""

from __future__ import annotations

from skep.clock import Instant, ManualClock
from skep.ids import Id, IdMint
from skep.model import (
    NewMessage,
    PushBatch,
    PushOutcome,
    PushResult,
    PushStatus,
    QueueKey,
    Replayed,
    Seq,
    StoredMessage,
)
from torture.check import check
from torture.history import Call, History
from torture.lost import Loss, unpromised
from torture.resolve import resolved

Q = QueueKey("q")


def ids(count: int) -> list[Id]:
    return IdMint(ManualClock()).mint_many(count)


def push(id_: Id, payload: bytes, result: PushResult | None, transaction_id: str | None = None) -> Call:
    batch = PushBatch([NewMessage(Q, payload, "p", transaction_id)], [id_])
    answer = None if result is None else [PushOutcome([result], {})]
    return Call("client", "push", 1, None if result is None else 2, Instant(0), [batch], answer)


def log(*messages: tuple[int, Id, bytes]) -> Call:
    found = [
        StoredMessage(
            queue=Q, seq=Seq(seq), partition="p", id=id_, transaction_id=None, trace_id=id_, headers=None, content_type=None,
            payload=payload, payload_bytes=len(payload), priority=0, created_at=Instant(0),
        )
        for seq, id_, payload in messages
    ]  # fmt: skip
    return Call("observer", "log", 10, 11, Instant(0), Q, found)


def test_a_push_without_an_answer_gets_the_id_of_the_first_message_with_its_payload() -> None:
    ours, theirs, copy = ids(3)

    calls = resolved([push(ours, b"1", None), log((4, theirs, b"1"), (9, copy, b"1"))])

    assert calls[0].request[0].ids == [theirs]
    assert [entry.seq for entry in History(calls).entries[Q]] == [4]


def test_a_push_that_nobody_saw_keeps_its_own_id() -> None:
    ours, other = ids(2)

    calls = resolved([push(ours, b"1", None), log((1, other, b"2"))])

    assert calls[0].request[0].ids == [ours]


def test_a_duplicate_of_itself_was_stored_by_the_call() -> None:
    ours, stored = ids(2)
    duplicate = PushResult(PushStatus.DUPLICATE, stored, Seq(3))

    [itself, _] = resolved([push(ours, b"1", duplicate, "t"), log((3, stored, b"1"))])
    [another, _] = resolved([push(ours, b"1", duplicate, "t"), log((3, stored, b"2"))])

    assert itself.answer[0].results == [PushResult(PushStatus.STORED, stored, Seq(3))]
    assert itself.request[0].ids == [stored]
    assert another.answer[0].results == [duplicate]


def test_a_push_that_was_refused_and_is_seen_has_that_id() -> None:
    ours, stored = ids(2)
    refusal = PushResult(PushStatus.REFUSED, ours)

    calls = resolved([push(ours, b"1", refusal), log((3, stored, b"1"))])

    assert calls[0].request[0].ids == [stored]
    assert [violation.promise for violation in check(History(calls))] == ["I2"]


def test_a_replay_without_an_answer_made_what_has_a_payload_that_was_stored_before() -> None:
    ours, copy, foreign = ids(3)
    stored = PushResult(PushStatus.STORED, ours, Seq(1))
    replay = Call("client", "replay", 5, None, Instant(0), ([], {}, Q))

    calls = resolved([push(ours, b"1", stored), replay, log((1, ours, b"1"), (2, copy, b"1"), (3, foreign, b"?"))])

    assert calls[1].request[0] == [copy]


def test_a_replay_whose_answer_a_failover_lost_made_what_the_answer_said() -> None:
    ours, copy = ids(2)
    stored = PushResult(PushStatus.STORED, ours, Seq(1))
    replay = Call("client", "replay", 5, 6, Instant(0), ([copy], {9: "g"}, Q), [Replayed(Seq(9), Q, copy, Seq(2))])
    calls = [push(ours, b"1", stored), replay, log((1, ours, b"1"), (2, copy, b"1"))]

    [_, lost, _] = resolved(unpromised(calls, [Loss(5, 6)]))

    assert lost.ended is None
    assert lost.request[0] == [copy]
