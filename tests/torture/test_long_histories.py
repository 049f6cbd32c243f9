"""Long histories: the checker takes one pass per rule, so that a million messages can be checked."""

from __future__ import annotations

import itertools

import pytest
from msgspec import structs

from skep.clock import Instant, ManualClock
from skep.ids import IdMint
from skep.model import (
    WHOLE_LEASE,
    Delivery,
    NewMessage,
    Ordering,
    Outcome,
    PopRequest,
    PopResult,
    PushBatch,
    PushOutcome,
    PushResult,
    PushStatus,
    QueueKey,
    QueueSettings,
    Seq,
    SettleResult,
    SettleStatus,
    StoredMessage,
    Token,
)
from torture.check import check, shortest
from torture.history import Call, History

BATCH = 100
PARTITIONS = 50
GROUPS = ("g", "h")
QUEUES = {QueueKey("ordered"): Ordering.PER_KEY, QueueKey("unordered"): Ordering.UNORDERED}


def long_history(messages: int) -> History:
    """A history of so many messages over both orderings, as two groups of a good store would leave it; a tenth comes twice."""
    clock = ManualClock()
    mint, ticks = IdMint(clock), itertools.count()
    calls: list[Call] = []

    def note(verb: str, request: object, answer: object) -> None:
        calls.append(Call("client", verb, next(ticks), next(ticks), clock.now(), request, answer))

    for number in range(messages // BATCH):
        queue = list(QUEUES)[number % 2]
        first, partition = (number // 2) * BATCH + 1, f"p{number // 2 % PARTITIONS}"
        ids = mint.mint_many(BATCH)
        new = [NewMessage(queue=queue, payload=b"x", partition=partition) for _ in ids]
        results = [PushResult(PushStatus.STORED, id_, Seq(first + place)) for place, id_ in enumerate(ids)]
        note("push", [PushBatch(new, ids)], [PushOutcome(results, {})])
        for group, attempt in itertools.product(GROUPS, (1, 2)):
            if attempt == 2 and number % 10:
                continue
            request = PopRequest(queue, Token(bytes(mint.mint())), group, BATCH)
            deliveries = [
                Delivery(
                    queue, group, partition, result.seq or Seq(0), result.id, None, result.id, None, None, b"x", 0,
                    clock.now(), attempt, request.token, Instant(clock.now() + 1_000_000),
                )
                for result in results
            ]  # fmt: skip
            note("pop", [request], [PopResult(deliveries)])
            if attempt == 1 and number % 10 == 0:
                clock.advance(2.0)
                continue
            whole = structs.replace(deliveries[0].settlement(Outcome.ACK_THROUGH), seq=WHOLE_LEASE)
            note("settle", [whole], [SettleResult(SettleStatus.COMPLETED, messages=BATCH)])
    return History(calls, {queue: QueueSettings(ordering=ordering) for queue, ordering in QUEUES.items()})


def log_of(history: History, queue: QueueKey) -> list[StoredMessage]:
    return [
        StoredMessage(
            queue=queue, seq=Seq(entry.seq), partition=entry.partition, id=entry.id, transaction_id=None, trace_id=entry.id,
            headers=None, content_type=None, payload=b"x", payload_bytes=1, priority=0, created_at=entry.call.now,
        )
        for entry in history.entries[queue]
    ]  # fmt: skip


def check_long(messages: int) -> None:
    history = long_history(messages)
    end = history.calls[-1].last_tick + 1
    looks = [
        Call("client", "log", end, end + 1, history.calls[-1].now, queue, log_of(history, queue)) for queue in QUEUES
    ]
    whole = History([*history.calls, *looks], history.settings)

    assert check(whole) == []
    assert sum(len(entries) for entries in whole.entries.values()) == messages

    # One delivery that came again after its ack, somewhere in the middle, is found with the two calls that show it.
    pops = [place for place, call in enumerate(whole.calls) if call.verb == "pop"]
    stolen = whole.calls[pops[len(pops) // 2]]
    again = structs.replace(stolen, started=end + 2, ended=end + 3)
    [violation] = [
        one for one in shortest(check(History([*whole.calls, again], history.settings))) if one.promise == "I7"
    ]
    assert [call.verb for call in violation.witness] == ["settle", "pop"]
    assert violation.witness[1] is again


def test_a_history_of_a_few_thousand_messages_is_checked() -> None:
    check_long(4_000)


@pytest.mark.slow
def test_a_history_of_a_million_messages_is_checked() -> None:
    check_long(1_000_000)
