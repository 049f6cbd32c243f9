"""A failover that loses commits excuses the answers that came too late for the standby, and no others."""

from __future__ import annotations

from copy import deepcopy

from msgspec import structs

from skep.model import WHOLE_LEASE, Outcome
from tests.support.reference_store import ReferenceStore
from tests.unit.test_history_checker import SETTINGS, Q, Session, settlement
from torture.check import check
from torture.history import History
from torture.lost import Loss, lost_messages, unpromised


async def begun() -> Session:
    session = Session(ReferenceStore())
    await session.store.create_queue(Q, SETTINGS, session.now)
    return session


def fail_over(session: Session, standby: ReferenceStore) -> int:
    """Go on with what the standby has; the tick at which the primary died."""
    session.store = session.recorder.store = standby
    return next(session.ticks)


def broken(session: Session, *losses: Loss) -> set[str]:
    history = History(unpromised(session.recorder.calls, list(losses)), {Q: SETTINGS})
    return {violation.promise for violation in check(history)}


async def test_I1_an_answer_that_came_too_late_for_the_standby_is_no_promise() -> None:
    session = await begun()
    await session.push("kept")
    since, standby = next(session.ticks), deepcopy(session.store)
    await session.push("lost")
    await session.settle(*await session.pop())
    loss = Loss(since, fail_over(session, standby))
    await session.push("new")
    await session.settle(*await session.pop(2))
    await session.recorder.log(Q, session.now)

    assert {"I1", "I4", "I6"} <= broken(session)
    assert broken(session, loss) == set()
    assert lost_messages(session.recorder.calls, [loss], {Q: SETTINGS}) == 1


async def test_I1_an_answer_of_before_is_a_promise() -> None:
    session = await begun()
    standby = deepcopy(session.store)
    await session.push("lost")
    loss = Loss(next(session.ticks), fail_over(session, standby))
    await session.recorder.log(Q, session.now)

    assert broken(session, loss) == {"I1"}
    assert lost_messages(session.recorder.calls, [loss], {Q: SETTINGS}) == 0


async def test_I1_what_the_new_primary_answers_is_a_promise() -> None:
    session = await begun()
    loss = Loss(next(session.ticks), fail_over(session, session.store))
    standby = deepcopy(session.store)
    await session.push("lost")
    fail_over(session, standby)
    await session.recorder.log(Q, session.now)

    assert broken(session, loss) == {"I1"}


async def test_I4_a_lease_of_which_only_lost_answers_tell_is_acked_after_the_failover() -> None:
    session = await begun()
    await session.push("a", "b")
    since = next(session.ticks)
    [held] = await session.pop()
    loss = Loss(since, fail_over(session, session.store))
    ack = structs.replace(settlement(held, Outcome.ACK_THROUGH), seq=WHOLE_LEASE)
    await session.recorder.settle([ack], session.now)

    assert [delivery.seq for delivery in await session.pop()] == [2]
    assert broken(session, loss) == set()
