"""Histories of a good store that only look bad: the checker knows what explains them."""

from __future__ import annotations

import pytest
from msgspec import structs

from skep.model import (
    WHOLE_LEASE,
    ClearScope,
    Ordering,
    Outcome,
    PopRequest,
    PopResult,
    PushBatch,
    PushStatus,
    QueueKey,
    QueueSettings,
    Renewal,
    Start,
    StartMode,
    StoredMessage,
    Token,
)
from skep.model.queue import DEAD_LETTER_SUFFIX
from skep.store.sqlite import SqliteStore
from tests.support.reference_store import ReferenceStore
from tests.unit.test_history_checker import LEASE_SECONDS, SETTINGS, Q, Session, message, settlement
from torture import recorder
from torture.check import check
from torture.history import History


async def session_on(*queues: QueueKey) -> Session:
    session = Session(ReferenceStore())
    for queue in queues:
        await session.store.create_queue(queue, SETTINGS, session.now)
    return session


async def test_I5_a_renewal_may_make_a_lease_shorter() -> None:
    session = await session_on(Q)
    await session.push("a")
    [held] = await session.pop()
    await session.recorder.renew([renewal_of(held.partition, held.token, 1.0)], session.now)
    session.clock.advance(2)

    assert [delivery.attempt for delivery in await session.pop()] == [2]
    assert check(session.history()) == []


async def test_I5_a_renewal_is_for_one_partition() -> None:
    session = await session_on(Q)
    await session.push("a", partition="p")
    await session.push("b", partition="o")
    held = await session.pop(2)
    session.clock.advance(1)
    await session.recorder.renew([renewal_of("p", held[0].token, LEASE_SECONDS)], session.now)
    session.clock.advance(LEASE_SECONDS - 1)

    assert [delivery.partition for delivery in await session.pop(2)] == ["o"]
    assert check(session.history()) == []


async def test_I5_the_deletion_of_a_held_message_ends_its_lease() -> None:
    session = await session_on(Q)
    for name in ("a", "b"):
        await session.push(name, partition="p")
    await session.push("c", partition="o")
    held = await session.pop(3)
    [first, second, _] = sorted(held, key=lambda delivery: delivery.seq)
    await session.recorder.delete_message(Q, first.seq, session.now)

    again = await session.pop(3)

    assert [delivery.seq for delivery in again] == [second.seq]
    assert check(session.history()) == []
    other = [structs.replace(delivery, token=again[0].token) for delivery in held if delivery.partition == "o"]
    stolen = structs.replace(session.recorder.calls[-1], answer=[PopResult([*again, *other])])
    broken = check(History([*session.recorder.calls[:-1], stolen], {Q: SETTINGS}))
    assert "two live leases on o" in " ".join(one.text for one in broken if one.promise == "I5")


def renewal_of(partition: str, token: Token, lease_seconds: float) -> Renewal:
    return Renewal(queue=Q, partition=partition, token=token, lease_seconds=lease_seconds, group="g")


async def test_I4_whole_leases_of_two_queues_under_one_token_are_acked() -> None:
    other = QueueKey("r")
    session = await session_on(Q, other)
    for queue in (Q, other):
        new = [structs.replace(message(text), queue=queue) for text in ("a", "b")]
        await session.recorder.push([PushBatch(new, session.mint.mint_many(2))], session.now)
    requests = [PopRequest(queue, Token(b"t" * 16), "g") for queue in (Q, other)]
    popped = await session.recorder.pop(requests, session.now)
    acks = [settlement(one.deliveries[0], Outcome.ACK_THROUGH) for one in popped]
    await session.recorder.settle([structs.replace(ack, seq=WHOLE_LEASE) for ack in acks], session.now)
    for queue in (Q, other):
        request = PopRequest(queue, Token(bytes(session.mint.mint())), "g")
        [found] = await session.recorder.pop([request], session.now)
        assert [delivery.seq for delivery in found.deliveries] == [2]

    assert check(session.history()) == []


async def test_I6_an_ack_of_a_lease_that_ran_out_settles_what_nobody_else_has_of_it() -> None:
    """Of an unordered queue. The reference ends all of such a lease at once, so this is on SQLite."""
    loose = structs.replace(SETTINGS, ordering=Ordering.UNORDERED)
    store = SqliteStore(":memory:")
    await store.open()
    session = Session(store)  # type: ignore[arg-type] # it has the verbs that are used here
    await store.create_queue(Q, loose, session.now)
    await session.push("a", "b")
    await session.settle(*await session.pop(1))
    await session.push("c", "d")  # which the group sees later than b: they run out apart from it
    late = await session.pop(3)
    session.clock.advance(LEASE_SECONDS)
    [again] = await session.pop(1)
    whole = structs.replace(settlement(late[0], Outcome.ACK_THROUGH), seq=WHOLE_LEASE)
    [result] = await session.recorder.settle([whole], session.now)
    await session.settle(again)
    await store.close()

    assert result.messages == 2
    calls = session.recorder.calls
    assert check(History(calls, {Q: loose}, drained=True)) == []
    lied = structs.replace(calls[-2], answer=[structs.replace(result, messages=3)])
    found = check(History([*calls[:-2], lied, calls[-1]], {Q: loose}, drained=True))
    assert f"seq {again.seq} was settled with a stale token" in [one.text for one in found]


async def test_I6_an_ack_of_a_lease_that_says_of_fewer_messages_may_be_about_any_of_them() -> None:
    session = await session_on(Q)
    await session.push("a", "b", "c")
    held = await session.pop(3)
    await session.settle(held[1])
    session.recorder.calls[-1] = structs.replace(session.recorder.calls[-1], ended=None, answer=None)
    whole = structs.replace(settlement(held[0], Outcome.ACK_THROUGH), seq=WHOLE_LEASE)
    [result] = await session.recorder.settle([whole], session.now)

    assert result.messages == 2
    assert check(session.history()) == []


async def test_I7_a_seek_beyond_the_end_passes_nothing_that_comes_later() -> None:
    session = await session_on(Q)
    await session.push("a")
    await session.recorder.seek(Q, "g", Start(StartMode.SEQ, 5), session.now)
    await session.push("b")

    assert [delivery.seq for delivery in await session.pop()] == [2]
    assert check(session.history()) == []


async def test_I7_a_repeated_ack_tells_of_what_was_settled_before_a_seek() -> None:
    session = await session_on(Q)
    await session.push("a")
    [held] = await session.pop()
    await session.settle(held)
    session.recorder.calls[-1] = structs.replace(session.recorder.calls[-1], ended=None, answer=None)
    await session.recorder.seek(Q, "g", Start(), session.now)
    await session.settle(held)
    assert session.recorder.calls[-1].answer[0].repeated

    assert [delivery.seq for delivery in await session.pop()] == [1]
    assert check(session.history()) == []


async def test_I10_a_lease_goes_on_with_its_attempts_after_pending_messages_were_cleared() -> None:
    session = await session_on(Q)
    await session.push("a")
    await session.pop()
    await session.recorder.clear(Q, ClearScope.PENDING, session.now)
    session.clock.advance(LEASE_SECONDS)

    assert [delivery.attempt for delivery in await session.pop()] == [2]
    assert check(session.history()) == []


async def test_I9_a_pop_that_began_earlier_may_have_waited_and_taken_over() -> None:
    session = await session_on(Q)
    await session.push("a")
    await session.pop()
    first = session.recorder.calls[-1].started
    session.clock.advance(LEASE_SECONDS)
    [held] = await session.pop()
    session.recorder.calls[-1] = structs.replace(session.recorder.calls[-1], started=first - 1)
    await session.settle(held)
    assert await session.pop() == []

    assert check(session.history()) == []


async def test_I9_what_has_expired_does_not_come_again() -> None:
    aging = structs.replace(SETTINGS, max_age_seconds=LEASE_SECONDS / 2)
    session = Session(ReferenceStore())
    await session.store.create_queue(Q, aging, session.now)
    await session.push("a")
    await session.pop()
    session.clock.advance(LEASE_SECONDS)
    assert await session.pop() == []

    assert {violation.promise for violation in check(session.history())} == {"I9"}
    assert check(History(session.recorder.calls, {Q: aging})) == []


async def test_I9_what_was_deleted_does_not_come_again() -> None:
    session = await session_on(Q)
    await session.push("a", "b")
    [first, second] = await session.pop(2)
    await session.recorder.delete_message(Q, first.seq, session.now)
    session.clock.advance(LEASE_SECONDS)
    assert [again.seq for again in await session.pop(2)] == [second.seq]
    lost = structs.replace(session.recorder.calls.pop(), answer=[PopResult([])])
    assert {one.promise for one in check(History([*session.recorder.calls, lost], {Q: SETTINGS}))} == {"I9"}

    await session.recorder.delete_message(Q, second.seq, session.now)
    session.clock.advance(LEASE_SECONDS)
    assert await session.pop(2) == []
    assert check(session.history()) == []


async def test_I15_retention_may_leave_the_rest_of_a_batch() -> None:
    swept = structs.replace(SETTINGS, completed_retention_seconds=1.0)
    session = Session(ReferenceStore())
    await session.store.create_queue(Q, swept, session.now)
    await session.push("a", "b")
    session.recorder.calls[-1] = structs.replace(session.recorder.calls[-1], ended=None, answer=None)
    log = await session.recorder.log(Q, session.now)
    look = session.recorder.calls.pop()

    def broken(settings: QueueSettings, left: list[StoredMessage]) -> set[str]:
        history = History([*session.recorder.calls, structs.replace(look, answer=left)], {Q: settings})
        return {violation.promise for violation in check(history)}

    assert broken(swept, log[1:]) == set()
    assert broken(swept, log[:1]) == {"I15"}
    assert broken(SETTINGS, log[1:]) == {"I15"}


async def swept_operation() -> Session:
    """An operation whose message nobody sees in the log, which is empty at the end."""
    session = await session_on(Q)
    stored = (await session.push("a")).results[0]
    push = session.recorder.calls.pop()
    session.recorder.calls.append(structs.replace(push, verb="accept", answer=None))
    told = {"request": push.request[0], "answer": {stored.id: stored}, "ended": next(session.ticks)}
    session.recorder.calls.append(structs.replace(push, verb="operation", **told))
    return session


async def broken_when_swept(session: Session) -> set[str]:
    swept = structs.replace(SETTINGS, completed_retention_seconds=1.0)
    await session.recorder.log(Q, session.now)
    look = structs.replace(session.recorder.calls.pop(), answer=[])
    return {violation.promise for violation in check(History([*session.recorder.calls, look], {Q: swept}))}


async def test_I13_retention_may_take_what_an_operation_stored_before_anybody_sees_it() -> None:
    session = await swept_operation()
    held = await session.pop()
    assert await broken_when_swept(session) == {"I13"}

    await session.settle(*held)
    assert await broken_when_swept(session) == set()


async def test_I13_retention_may_take_what_an_operation_stored_and_a_lost_answer_settled() -> None:
    session = await swept_operation()
    request = PopRequest(Q, Token(b"t" * 16), "g", auto_ack=True)
    await session.recorder.pop([request], session.now)
    session.recorder.calls[-1] = structs.replace(session.recorder.calls[-1], ended=None, answer=None)
    await session.recorder.stats(Q, session.now)

    assert await broken_when_swept(session) == set()


async def overtaken(first: str | None, second: str | None, *, as_operation: bool = False) -> Session:
    """What one server accepted is overtaken by what a server, perhaps another one, was given later."""
    session = await session_on(Q)
    await session.push("b")
    await session.push("a")
    stored = [session.recorder.calls.pop(), session.recorder.calls.pop()]
    servers = {"a": first, "b": second}
    for push, when, server in zip(stored, stored[::-1], servers.values(), strict=True):
        times = {"started": when.started, "ended": when.ended, "server": server}
        session.recorder.calls.append(structs.replace(push, verb="accept", answer=None, **times))
    if as_operation:
        results = {result.id: result for result in stored[0].answer[0].results}
        operation = structs.replace(stored[0], verb="operation", request=stored[0].request[0], answer=results)
        session.recorder.calls.append(operation)
    await session.recorder.log(Q, session.now)
    return session


@pytest.mark.parametrize(
    ("first", "second", "is_broken"),
    [("one", "one", True), ("one", "two", False), ("one", None, False), (None, "one", False), (None, None, False)],
)
async def test_I13_what_is_spooled_is_before_later_pushes_through_the_same_server(
    first: str | None, second: str | None, is_broken: bool
) -> None:
    session = await overtaken(first, second)

    broken = {v.promise for v in check(History(session.recorder.calls, {Q: SETTINGS}))}
    assert broken == ({"I13"} if is_broken else set())
    assert check(History(session.recorder.calls, {Q: SETTINGS}, spools_apart=True)) == []


@pytest.mark.parametrize("second", ["one", "two", None])
@pytest.mark.parametrize("spools_apart", [False, True])
async def test_I13_an_operation_is_before_later_pushes_through_all_servers(
    second: str | None, spools_apart: bool
) -> None:
    session = await overtaken("one", second, as_operation=True)

    history = History(session.recorder.calls, {Q: SETTINGS}, spools_apart=spools_apart)
    assert {v.promise for v in check(history)} == {"I13"}


async def test_I11_all_dead_letters_are_seen_however_many_pages_they_take(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder, "PAGE_ROWS", 2)
    session = await session_on(Q)
    for text in ("a", "b", "c", "d", "e"):
        await session.push(text, partition=text)
    await session.settle(*await session.pop(5), outcome=Outcome.REJECT)
    await session.recorder.dead(Q, QueueKey(f"{Q.name}{DEAD_LETTER_SUFFIX}"), session.now)
    history = session.history()
    history.drained = True

    assert check(history) == []


async def test_I3_I7_I11_what_is_forgotten_takes_its_transaction_id_and_its_dead_letter_along_and_does_not_come_again() -> (
    None
):
    session = await session_on(Q)
    first = await session.push("a", transaction_id="t")
    held = await session.pop()
    await session.settle(*held, outcome=Outcome.REJECT)
    await session.recorder.forget(Q, held[0].seq, session.now)
    second = await session.push("a", transaction_id="t")
    await session.settle(*await session.pop())
    await session.look()
    calls = session.recorder.calls

    assert [outcome.results[0].status for outcome in (first, second)] == [PushStatus.STORED] * 2
    assert check(session.history()) == []
    without = History([call for call in calls if call.verb != "forget_message"], {Q: SETTINGS}, drained=True)
    assert {violation.promise for violation in check(without)} >= {"I1", "I3", "I11"}
    again = structs.replace(calls[-1], verb="pop", request=[PopRequest(Q, Token(b"again"), "h")])
    again = structs.replace(again, answer=[PopResult([structs.replace(held[0], group="h", token=Token(b"again"))])])
    broken = [one for one in check(History([*calls, again], {Q: SETTINGS})) if one.promise == "I7"]
    assert [(one.text, [call.verb for call in one.witness]) for one in broken] == [
        ("seq 1 was deleted and is seen again", ["forget_message", "pop"])
    ]


async def test_I2_a_message_that_was_forgotten_may_be_of_an_earlier_try_of_its_push() -> None:
    session = await session_on(Q)
    await session.push("a", transaction_id="t")
    [earlier] = await session.pop()
    await session.recorder.forget(Q, earlier.seq, session.now)
    pushed = session.recorder.calls.pop(0)
    later = await session.push("a", transaction_id="t")
    session.recorder.calls[-1] = structs.replace(session.recorder.calls[-1], started=pushed.started)

    assert later.results[0].seq == 2
    assert check(session.history()) == []
    forgotten = [call for call in session.recorder.calls if call.verb == "forget_message"]
    unknown = [call for call in session.recorder.calls if call not in forgotten]
    assert {violation.promise for violation in check(History(unknown, {Q: SETTINGS}))} == {"I2"}
