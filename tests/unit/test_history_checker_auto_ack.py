"""The checker of histories on pops that ack at once: what they took is settled, also when their answer was lost."""

from __future__ import annotations

import msgspec

from skep.model import ClearScope, PopRequest, QueueSettings, Seq, Settlement, Token
from tests.support.reference_store import ReferenceStore
from tests.unit.test_history_checker import SETTINGS, Q, Session
from torture.check import check
from torture.history import Call, History


async def acked_at_once(session: Session, batch: int = 1) -> Call:
    """A pop that acks at once, which is not in the history yet."""
    request = PopRequest(queue=Q, token=Token(bytes(session.mint.mint())), group="g", batch=batch, auto_ack=True)
    await session.recorder.pop([request], session.now)
    return session.recorder.calls.pop()


def without_answer(call: Call) -> Call:
    return msgspec.structs.replace(call, ended=None, answer=None)


def promises(session: Session, *more: Call, settings: QueueSettings = SETTINGS) -> set[str]:
    return {violation.promise for violation in check(History([*session.recorder.calls, *more], {Q: settings}))}


async def test_I8_a_lost_answer_excuses_as_many_as_it_asked_for() -> None:
    session = Session(ReferenceStore())
    await session.push("a", "b", "c")
    lost = without_answer(await acked_at_once(session, 3))
    await session.recorder.stats(Q, session.now)

    def asking_for(batch: int) -> Call:
        return msgspec.structs.replace(lost, request=[msgspec.structs.replace(lost.request[0], batch=batch)])

    assert promises(session, asking_for(3)) == set()
    assert promises(session, asking_for(2)) == {"I8"}


async def test_I7_what_was_acked_at_once_does_not_come_again() -> None:
    session = Session(ReferenceStore())
    await session.push("a")
    first = await acked_at_once(session)
    again = msgspec.structs.replace(first, started=next(session.ticks), ended=next(session.ticks))

    assert promises(session, first) == set()
    assert "I7" in promises(session, first, again)


async def test_I1_retention_may_have_taken_what_a_lost_answer_settled() -> None:
    session = Session(ReferenceStore())
    await session.push("a")
    lost = without_answer(await acked_at_once(session))
    await session.recorder.stats(Q, session.now)
    tick = next(session.ticks)
    look = Call("client", "log", tick, next(session.ticks), session.now, Q, [])
    settings = msgspec.structs.replace(SETTINGS, completed_retention_seconds=1)

    assert promises(session, lost, look, settings=settings) == set()
    assert "I1" in promises(session, look, settings=settings)


async def test_I4_a_lost_answer_may_have_settled_what_was_cleared_later() -> None:
    session = Session(ReferenceStore())
    await session.push("a", "b")
    lost = without_answer(await acked_at_once(session))
    await session.pop()
    await session.recorder.clear(Q, ClearScope.PENDING, session.now)

    assert promises(session, lost) == set()
    assert "I4" in promises(session)


async def test_I4_a_lost_answer_may_have_settled_what_a_stale_token_could_not() -> None:
    session = Session(ReferenceStore())
    await session.push("a", "b")
    lost = without_answer(await acked_at_once(session))
    await session.pop()
    stale = Settlement(queue=Q, partition="p", seq=Seq(1), token=Token(bytes(session.mint.mint())), group="g")
    tick = next(session.ticks)
    vain = Call("client", "settle", tick, None, session.now, [stale])

    assert promises(session, lost, vain) == set()
    assert "I4" in promises(session, vain)


async def test_I8_of_two_lost_answers_the_earlier_one_excuses_what_was_settled_first() -> None:
    session = Session(ReferenceStore())
    await session.push("a")
    early = without_answer(await acked_at_once(session))
    await session.recorder.stats(Q, session.now)
    await session.push("b")
    late = without_answer(await acked_at_once(session))

    assert promises(session, early, late) == set()
    assert promises(session, late, early) == set(), "also when a client that began later is read first"
    assert promises(session, late) == {"I8"}
