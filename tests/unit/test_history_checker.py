"""The checker of histories, checked: it finds nothing in what a good store does, and each promise a bad one breaks."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from skep.clock import Instant, ManualClock
from skep.errors import Code
from skep.ids import Id, IdMint
from skep.model import (
    Cleared,
    ClearScope,
    DeadLetter,
    DeadLetterFilter,
    Delivery,
    GroupStats,
    NewMessage,
    Outcome,
    PopRequest,
    PopResult,
    PushBatch,
    PushOutcome,
    PushStatus,
    QueueKey,
    QueueSettings,
    Renewal,
    Retry,
    Seq,
    Settlement,
    SettleResult,
    SettleStatus,
    Start,
    StartMode,
    StoredMessage,
    Token,
)
from skep.model.transaction import Transaction
from tests.support.reference import Group, Log
from tests.support.reference_store import ReferenceStore
from torture.check import check
from torture.history import Call, History
from torture.recorder import Recorder

Q = QueueKey("q")
DEAD = QueueKey("q.dead")
LEASE_SECONDS = 10.0
SETTINGS = QueueSettings(max_attempts=3, lease_seconds=LEASE_SECONDS, max_depth=12)


class Session:
    """A scripted client: enough of everything that each broken store shows its fault."""

    def __init__(self, store: ReferenceStore) -> None:
        self.clock = ManualClock()
        self.mint = IdMint(self.clock)
        self.ticks = itertools.count(1)
        self.recorder = Recorder(store, "client", lambda: next(self.ticks))
        self.store = store

    @property
    def now(self) -> Instant:
        return self.clock.now()

    async def push(self, *payloads: str, partition: str = "p", transaction_id: str | None = None) -> PushOutcome:
        messages = [
            NewMessage(queue=Q, payload=p.encode(), partition=partition, transaction_id=transaction_id)
            for p in payloads
        ]
        (outcome,) = await self.recorder.push([PushBatch(messages, self.mint.mint_many(len(messages)))], self.now)
        return outcome

    async def pop(self, batch: int = 1, group: str = "g") -> list[Delivery]:
        request = PopRequest(queue=Q, token=Token(bytes(self.mint.mint())), group=group, batch=batch)
        (result,) = await self.recorder.pop([request], self.now)
        return result.deliveries

    async def settle(self, *deliveries: Delivery, outcome: Outcome = Outcome.ACK) -> None:
        settlements = [settlement(d, outcome) for d in deliveries]
        await self.recorder.settle(settlements, self.now)

    async def look(self) -> None:
        await self.recorder.dead(Q, DEAD, self.now)
        await self.recorder.stats(Q, self.now)
        await self.recorder.log(Q, self.now)

    def history(self) -> History:
        return History(self.recorder.calls, {Q: SETTINGS}, drained=True)


def settlement(delivery: Delivery, outcome: Outcome = Outcome.ACK) -> Settlement:
    return Settlement(
        queue=delivery.queue,
        partition=delivery.partition,
        seq=delivery.seq,
        token=delivery.token,
        group=delivery.group,
        outcome=outcome,
        retry=Retry.NOW,
    )


async def exercise(store: ReferenceStore) -> History:
    """Push, pop, settle, let leases run out, use stale tokens, renew, transact, seek, replay, and look at it all."""
    session = Session(store)
    await store.create_queue(Q, SETTINGS, session.now)
    store.make_dead_letter_queue("q.dead", Q.tenant, session.now)
    await session.push("1", "2", "3")
    await session.push("4", partition="o")
    await session.push("once", transaction_id="t")
    await session.push("once", transaction_id="t")
    first = await session.pop(2)
    await session.pop(2, group="h")
    await session.settle(first[0])
    await session.look()
    await session.settle(first[1], outcome=Outcome.NACK)
    stale = await session.pop(1)
    session.clock.advance(LEASE_SECONDS)
    fresh = await session.pop(1)
    await session.settle(*stale)
    await session.recorder.renew([renewal(d) for d in fresh], session.now)
    await session.pop(5)
    await session.settle(*fresh)
    await session.push(*map(str, range(20)))
    taken = await session.pop(2)
    await session.look()
    transaction = Transaction([settlement(d) for d in taken], PushBatch([message("out")], session.mint.mint_many(1)))
    await session.recorder.transact([transaction], session.now)
    await session.settle(*await session.pop(5), outcome=Outcome.REJECT)
    await session.look()
    dead = DeadLetterFilter(queue=DEAD)
    await session.recorder.replay(dead, session.mint.mint_many(5), Seq(99), session.now)
    await session.settle(*await session.pop(9))
    session.clock.advance(LEASE_SECONDS)
    for group in ("h", "g"):
        for _ in range(20):  # a broken store might never come to an end
            await session.settle(*await session.pop(9, group=group))
    await session.look()
    await session.recorder.seek(Q, "g", Start(), session.now)
    await session.settle(*await session.pop(9))
    await session.look()
    await move(session)
    return session.history()


async def move(session: Session) -> None:
    """Seek under a live lease, release one, and clear; what holds of other groups holds after it, too."""
    await session.push("before the moves")
    held = await session.pop(1)
    await session.recorder.seek(Q, "g", Start(StartMode.SEQ, 3), session.now)
    await session.settle(*held)
    for _ in range(20):
        await session.settle(*await session.pop(9))
    await session.look()
    await session.push("released", partition="r")
    for delivery in await session.pop(1):
        await session.recorder.release(delivery, session.now)
    await session.push("cleared", partition="c")
    await session.recorder.clear(Q, ClearScope.ALL, session.now)
    await session.settle(*await session.pop(9))
    await session.look()


def message(payload: str) -> NewMessage:
    return NewMessage(queue=Q, payload=payload.encode(), partition="p")


def renewal(delivery: Delivery) -> Renewal:
    return Renewal(
        queue=Q, partition=delivery.partition, token=delivery.token, lease_seconds=LEASE_SECONDS, group=delivery.group
    )


async def test_a_good_store_shows_no_violation() -> None:
    history = await exercise(ReferenceStore())

    assert check(history) == []
    verbs = {call.verb for call in history.calls}
    moving = {"seek", "clear", "release"}
    assert verbs == {"push", "pop", "settle", "renew", "transact", "replay", "stats", "log", "dead"} | moving


# stores that break one promise each


class Loses(ReferenceStore):
    """I1: answers a push that it then forgets."""

    async def push(self, batches: Sequence[PushBatch], now: Instant, create_queues: bool = True) -> list[PushOutcome]:
        outcomes = await super().push(batches, now, create_queues)
        self.logs[Q].entries.pop(2, None)
        return outcomes


class Invents(ReferenceStore):
    """I2: hands out what nobody pushed."""

    async def pop(self, requests: Sequence[PopRequest], now: Instant) -> list[PopResult]:
        results = await super().pop(requests, now)
        return [PopResult([msgspec.structs.replace(d, id=self.mint()) for d in r.deliveries]) for r in results]


class StoresRefused(ReferenceStore):
    """I2: says that a push was refused and stores it all the same."""

    async def push(self, batches: Sequence[PushBatch], now: Instant, create_queues: bool = True) -> list[PushOutcome]:
        outcomes = await super().push(batches, now, create_queues)
        for batch, outcome in zip(batches, outcomes, strict=True):
            if outcome.refused:
                self.append(self.logs[Q], batch.messages[0], batch.ids[0], now)
        return outcomes


class Repeats(ReferenceStore):
    """I3: knows no transaction ids."""

    async def push(self, batches: Sequence[PushBatch], now: Instant, create_queues: bool = True) -> list[PushOutcome]:
        for log in self.logs.values():
            log.dedup.clear()
        return await super().push(batches, now, create_queues)


class Reorders(ReferenceStore):
    """I4: gives a batch back to front."""

    async def pop(self, requests: Sequence[PopRequest], now: Instant) -> list[PopResult]:
        return [PopResult(r.deliveries[::-1]) for r in await super().pop(requests, now)]


class Overtakes(ReferenceStore):
    """I4: goes on with what is next while the head waits."""

    def _claim_partition(self, log: Log, group: Group, partition: str, wanted: int, now: Instant) -> list[int]:
        found = super()._claim_partition(log, group, partition, wanted, now)
        pending = self.of_partition(log, group, partition, "pending")
        return pending[:wanted] if pending and group.count("open") else found


class LeasesTwice(ReferenceStore):
    """I5: gives a leased partition to the next who asks."""

    def ready_at(self, log: Log, group: Group, partition: str) -> int:
        return 0


class TrustsAnyone(ReferenceStore):
    """I6: takes whatever token for the right one."""

    async def settle(self, settlements: Sequence[Settlement], now: Instant) -> list[SettleResult]:
        known = {
            (group.name, seq): lease.token
            for group in self.logs[Q].groups.values()
            for lease in group.leases
            for seq in lease.held
        }
        forged = [
            msgspec.structs.replace(one, token=known.get((one.group, int(one.seq)), one.token)) for one in settlements
        ]
        return await super().settle(forged, now)


class SettlesTwice(ReferenceStore):
    """I6: says yes to everything."""

    async def settle(self, settlements: Sequence[Settlement], now: Instant) -> list[SettleResult]:
        results = await super().settle(settlements, now)
        return [SettleResult(SettleStatus.COMPLETED) if r.code is Code.STALE_LEASE else r for r in results]


class Forgets(ReferenceStore):
    """I7: lets go of an ack."""

    async def settle(self, settlements: Sequence[Settlement], now: Instant) -> list[SettleResult]:
        results = await super().settle(settlements, now)
        for group in self.logs[Q].groups.values():
            if 1 in group.marks and group.marks[1].state == "completed":
                group.marks[1].state = "open"
        return results


class FallsBack(ReferenceStore):
    """I7: reports less progress each time."""

    def group_stats(self, log: Log, group: Group, now: Instant) -> GroupStats:
        stats = super().group_stats(log, group, now)
        self.ids += 1
        return msgspec.structs.replace(stats, progress_seq=Seq(10_000 - self.ids))


class Skips(ReferenceStore):
    """I8: claims to be done with everything."""

    def group_stats(self, log: Log, group: Group, now: Instant) -> GroupStats:
        return msgspec.structs.replace(super().group_stats(log, group, now), progress_seq=Seq(log.last_seq))


class NeverAgain(ReferenceStore):
    """I9: does not notice that a lease has run out."""

    def ready_at(self, log: Log, group: Group, partition: str) -> int:
        lease = self.lease_in(group, partition)
        return 2**62 if lease is not None else super().ready_at(log, group, partition)


class Miscounts(ReferenceStore):
    """I10: calls every delivery the first."""

    def _delivery(self, log: Log, group: Group, request: PopRequest, seq: int, now: Instant) -> Delivery:
        return msgspec.structs.replace(super()._delivery(log, group, request, seq, now), attempt=1)


class NeverGivesUp(ReferenceStore):
    """I10: knows no limit."""

    async def pop(self, requests: Sequence[PopRequest], now: Instant) -> list[PopResult]:
        results = await super().pop(requests, now)
        return [PopResult([msgspec.structs.replace(d, attempt=d.attempt + 3) for d in r.deliveries]) for r in results]


class Miscalculates(ReferenceStore):
    """I12: loses a message from the account."""

    def group_stats(self, log: Log, group: Group, now: Instant) -> GroupStats:
        stats = super().group_stats(log, group, now)
        return msgspec.structs.replace(stats, completed=stats.completed + 1)


class LosesDead(ReferenceStore):
    """I11: says that a message is dead, and keeps it nowhere."""

    async def dead_letters(
        self, wanted: DeadLetterFilter, after: Seq | None, limit: int, max_bytes: int = 2**62
    ) -> list[DeadLetter]:
        found = await super().dead_letters(wanted, after, limit, max_bytes)
        return found[1:] if wanted.source_queue else found


class BuriesTwice(ReferenceStore):
    """I11: has the same dead letter twice."""

    async def dead_letters(
        self, wanted: DeadLetterFilter, after: Seq | None, limit: int, max_bytes: int = 2**62
    ) -> list[DeadLetter]:
        return 2 * await super().dead_letters(wanted, after, limit, max_bytes)


class SeeksPast(ReferenceStore):
    """I8: a seek goes one message too far."""

    def position(self, log: Log, start: Start) -> int:
        return super().position(log, start) + 1


class SeeksShort(ReferenceStore):
    """I7: a seek leaves the group where it was."""

    def position(self, log: Log, start: Start) -> int:
        return 1


class KeepsLeases(ReferenceStore):
    """I6: a seek does not end the leases of the group."""

    async def seek(self, key: QueueKey, group: str, start: Start, now: Instant) -> GroupStats:
        leases = list(self.logs[key].groups[group].leases)
        stats = await super().seek(key, group, start, now)
        moved = self.logs[key].groups[group]
        self.discover(self.logs[key], moved, now)
        moved.leases += leases
        return stats


class ClearsNothing(ReferenceStore):
    """I7: what was cleared is delivered."""

    async def clear(self, key: QueueKey, scope: ClearScope, now: Instant) -> Cleared:
        return Cleared(0, 0)


class ReplaysToAll(ReferenceStore):
    """I14: lets every group see a replay."""

    def append(self, log: Log, message: NewMessage, id_: Id, now: Instant, audience: int | None = None) -> Any:
        return super().append(log, message, id_, now)


@pytest.mark.parametrize(
    ("broken", "promise"),
    [
        (Loses, "I1"),
        (Invents, "I2"),
        (StoresRefused, "I2"),
        (Repeats, "I3"),
        (Reorders, "I4"),
        (Overtakes, "I4"),
        (LeasesTwice, "I5"),
        (TrustsAnyone, "I6"),
        (SettlesTwice, "I6"),
        (Forgets, "I7"),
        (FallsBack, "I7"),
        (Skips, "I8"),
        (NeverAgain, "I9"),
        (Miscounts, "I10"),
        (NeverGivesUp, "I10"),
        (Miscalculates, "I12"),
        (LosesDead, "I11"),
        (BuriesTwice, "I11"),
        (SeeksPast, "I8"),
        (SeeksShort, "I7"),
        (KeepsLeases, "I6"),
        (ClearsNothing, "I7"),
        (ReplaysToAll, "I14"),
    ],
)
async def test_a_broken_store_is_found_out(broken: type[ReferenceStore], promise: str) -> None:
    violations = check(await exercise(broken()))

    assert promise in {violation.promise for violation in violations}, violations


# histories written by hand, for what no single client of a whole store can show


def call(number: int, verb: str, request: Any, answer: Any, ended: bool = True) -> Call:
    """The number-th call, one after the other."""
    return Call("client", verb, number * 10, number * 10 + 5 if ended else None, Instant(number), request, answer)


def stored(seq: int, id_: Id, partition: str = "p") -> StoredMessage:
    return StoredMessage(
        queue=Q,
        seq=Seq(seq),
        partition=partition,
        id=id_,
        transaction_id=None,
        trace_id=id_,
        headers=None,
        content_type=None,
        payload=b"",
        payload_bytes=0,
        priority=0,
        created_at=Instant(0),
    )


def ids(count: int) -> list[Id]:
    return IdMint(ManualClock()).mint_many(count)


def promises(*calls: Call) -> set[str]:
    return {violation.promise for violation in check(History(list(calls)))}


def test_I4_a_seq_that_disagrees_with_the_order_of_answers_is_found() -> None:
    from skep.model import PushResult

    a, b = ids(2)

    def pushed(number: int, id_: Id, seq: int) -> Call:
        outcome = PushOutcome([PushResult(PushStatus.STORED, id_, Seq(seq))], {})
        return call(number, "push", [PushBatch([message("x")], [id_])], [outcome])

    assert promises(pushed(1, a, 2), pushed(2, b, 1)) == {"I4"}
    assert promises(pushed(1, a, 1), pushed(2, b, 2)) == set()


async def test_I5_a_claim_may_come_late_and_after_a_lease_that_took_over() -> None:
    session = Session(ReferenceStore())
    await session.store.create_queue(Q, SETTINGS, session.now)
    await session.push("a", "b")
    await session.pop(2)
    early = session.now
    session.clock.advance(LEASE_SECONDS)
    (over,) = await session.pop(1)
    asked = session.recorder.calls[-1].started
    await session.settle(over)
    request = PopRequest(queue=Q, token=Token(bytes(session.mint.mint())), group="g")
    (late,) = await session.recorder.pop([request], early)
    assert [delivery.seq for delivery in late.deliveries] == [2]
    answered = session.recorder.calls.pop()

    def promises_when_asked(started: int) -> set[str]:
        calls = [*session.recorder.calls, msgspec.structs.replace(answered, started=started)]
        return {violation.promise for violation in check(History(calls, {Q: SETTINGS}))}

    assert promises_when_asked(asked - 1) == set()

    # Whoever took over would still have it, had it not been settled; and without anybody the first would.
    session.recorder.calls = [call for call in session.recorder.calls if call.started <= asked]
    assert "I5" in promises_when_asked(asked - 1)
    session.recorder.calls.pop()
    assert "I5" in promises_when_asked(asked - 1)


async def test_I9_what_is_left_after_a_drain_was_stranded() -> None:
    session = Session(ReferenceStore())
    await session.push("a", "b")
    await session.settle(*await session.pop(1))
    await session.recorder.stats(Q, session.now)
    history = session.history()

    assert {violation.promise for violation in check(history)} == {"I9"}
    assert check(History(history.calls, history.settings)) == []


def test_I13_an_accepted_message_must_be_in_the_log_once_and_first() -> None:
    a, b = ids(2)
    accepted = call(1, "accept", [PushBatch([message("a")], [a])], None)
    later = call(2, "accept", [PushBatch([message("b")], [b])], None)

    assert promises(accepted, later, call(3, "log", Q, [stored(1, a), stored(2, b)])) == set()
    assert promises(accepted, later, call(3, "log", Q, [stored(1, b), stored(2, a)])) == {"I13"}
    assert promises(accepted, later, call(3, "log", Q, [stored(1, a), stored(2, b), stored(3, a)])) == {"I13"}
    assert promises(accepted, later, call(3, "log", Q, [stored(1, b)])) == {"I13"}


def test_I13_an_accepted_message_may_come_late_and_stay_away_for_a_reason() -> None:
    a, b = ids(2)
    accepted = call(1, "accept", [PushBatch([message("a")], [a])], None)
    nothing = call(3, "log", Q, [])
    named = NewMessage(queue=Q, payload=b"", partition="p", transaction_id="t")
    twice = [call(number, "accept", [PushBatch([named], [id_])], None) for number, id_ in ((1, a), (2, b))]

    assert promises(accepted, call(2, "log", Q, []), call(3, "log", Q, [stored(1, a)])) == set()
    assert promises(accepted, nothing) == {"I13"}
    assert check(History([accepted, nothing], {Q: QueueSettings(max_depth=1)})) == []
    assert promises(accepted, call(2, "delete_message", (Q, 1), None), nothing) == set()
    assert promises(*twice, call(3, "log", Q, [stored(1, a)])) == set()
    assert promises(twice[0], nothing) == {"I13"}


def test_I15_a_batch_without_an_answer_is_whole_or_not_there() -> None:
    a, b = ids(2)
    push = call(1, "push", [PushBatch([message("a"), message("b")], [a, b])], None, ended=False)

    assert promises(push, call(2, "log", Q, [])) == set()
    assert promises(push, call(2, "log", Q, [stored(1, a), stored(2, b)])) == set()
    assert promises(push, call(2, "log", Q, [stored(1, b)])) == {"I15"}


async def test_I15_a_transaction_without_an_answer_is_whole_or_not_there() -> None:
    session = Session(ReferenceStore())
    await session.push("in")
    (delivery,) = await session.pop()
    batch = PushBatch([message("out")], session.mint.mint_many(1))
    await session.recorder.transact([Transaction([settlement(delivery)], batch)], session.now)
    answered = session.recorder.calls.pop()
    session.recorder.calls.append(Call("client", "transact", answered.started, None, session.now, answered.request))
    await session.recorder.log(Q, session.now)
    whole = session.history()
    half = Session(ReferenceStore())
    half.recorder.calls += whole.calls
    half.ticks = itertools.count(1_000)
    again = PopRequest(queue=Q, token=Token(bytes(session.mint.mint())), group="g")
    redelivered = msgspec.structs.replace(delivery, attempt=2, token=again.token)
    half.recorder.calls.append(call(500, "pop", [again], [PopResult([redelivered])]))

    assert check(whole) == []
    assert "I15" in {violation.promise for violation in check(half.history())}
