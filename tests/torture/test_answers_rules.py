"""Answers that leave something out, and messages at two places of the log, are violations, and no end of the checker."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from skep.ids import Id
from skep.model import PopRequest, PopResult, PushBatch, PushOutcome, QueueSettings, Seq, Token
from skep.model.transaction import Transaction, TransactionOutcome
from tests.support.reference_store import ReferenceStore
from tests.unit.test_history_checker import SETTINGS, Q, Session, renewal, settlement
from torture.check import check
from torture.history import Call, History
from torture.lost import Loss, lost_messages, unpromised
from torture.resolve import resolved

SWEPT = structs.replace(SETTINGS, completed_retention_seconds=1.0)


def broken(calls: list[Call], settings: QueueSettings = SETTINGS) -> set[str]:
    return {violation.promise for violation in check(History(calls, {Q: settings}))}


def shortened(answer: Any) -> Any:
    """The answer without what it said last."""
    if isinstance(answer, PushOutcome):
        return PushOutcome(list(answer.results)[:-1], {})
    if isinstance(answer, TransactionOutcome):
        return structs.replace(answer, pushed=shortened(answer.pushed))
    return answer


async def test_I15_a_push_is_answered_for_each_of_its_messages() -> None:
    session = Session(ReferenceStore())
    await session.push("a", "b")
    [push] = session.recorder.calls
    for count in (0, 1):
        calls = [structs.replace(push, answer=[PushOutcome(push.answer[0].results[:count], {})])]

        assert broken(resolved(calls)) == {"I15"}
        assert lost_messages(calls, [Loss(0, 100)], {Q: SETTINGS}) == count
    assert broken([structs.replace(push, answer=[])]) == {"I15"}
    assert broken([push]) == set()


@pytest.mark.parametrize(("verb", "promise"), [("settle", "I6"), ("renew", "I6"), ("transact", "I15")])
async def test_I6_I15_an_answer_says_what_became_of_everything(verb: str, promise: str) -> None:
    session = Session(ReferenceStore())
    outcome = await session.push("a", "b")
    held = await session.pop(2)
    batch = structs.replace(session.recorder.calls[0].request[0], ids=session.mint.mint_many(2))
    requests: dict[str, list[Any]] = {
        "settle": [settlement(one) for one in held],
        "renew": [renewal(one) for one in held],
        "transact": [Transaction([settlement(one) for one in held], batch)],
    }
    assert len(outcome.results) == len(held) == 2
    await getattr(session.recorder, verb)(requests[verb], session.now)
    *before, call = session.recorder.calls
    short = [shortened(one) for one in call.answer] if verb == "transact" else call.answer[:-1]

    assert broken([*before, call]) == set()
    assert broken([*before, structs.replace(call, answer=short)]) == {promise}
    assert broken([*before, structs.replace(call, answer=[])]) == {promise}


async def copied(*, as_operation: bool) -> list[Call]:
    """A message that was accepted for later, stored at two seqs, and deleted from both: only deliveries show it."""
    session = Session(ReferenceStore())
    calls, ticks = session.recorder.calls, session.ticks

    def note(verb: str, request: Any, answer: Any) -> None:
        calls.append(Call("client", verb, next(ticks), next(ticks), session.now, request, answer))

    stored = (await session.push("a")).results[0]
    push = calls.pop()
    note("accept", push.request, None)
    if as_operation:
        note("operation", push.request[0], {stored.id: stored})
    requests = [PopRequest(Q, Token(token * 16), "g", auto_ack=True) for token in (b"1", b"2")]
    [popped] = await session.recorder.pop(requests[:1], session.now)
    again = structs.replace(popped.deliveries[0], seq=Seq(2), token=requests[1].token)
    note("pop", requests[1:], [PopResult([again])])
    note("log", Q, [])
    return calls


async def test_I13_an_operation_that_was_performed_twice_shows_in_deliveries_alone() -> None:
    assert broken(await copied(as_operation=True), SWEPT) == {"I13"}


async def test_I13_a_spooled_push_may_be_stored_again_when_the_first_was_deleted() -> None:
    assert broken(await copied(as_operation=False), SWEPT) == set()
    assert "a message is at seq 1 and at seq 2" in {
        violation.text for violation in check(History(await copied(as_operation=False), {Q: SETTINGS}))
    }


async def test_I2_a_message_that_is_delivered_as_another_one_too_was_not_pushed() -> None:
    session = Session(ReferenceStore())
    await session.push("a", "b")
    first, second = await session.pop(2)
    *before, call = session.recorder.calls

    def delivered(id_: Id) -> list[Call]:
        popped = PopResult([first, structs.replace(second, id=id_, payload=first.payload)])
        return [*before, structs.replace(call, answer=[popped])]

    assert broken([*before, call]) == set()
    assert broken(delivered(first.id)) == {"I2"}


async def test_I15_a_lost_answer_that_left_something_out_accuses_nobody() -> None:
    session = Session(ReferenceStore())
    await session.push("a", "b")
    [push] = session.recorder.calls
    short = structs.replace(push, answer=[PushOutcome(push.answer[0].results[:1], {})])

    assert broken(unpromised([short], [Loss(0, 100)])) == set()


async def test_I3_the_first_of_duplicates_may_be_a_push_that_nobody_saw() -> None:
    """It had no answer, and its messages left the log before anybody came: only the duplicates tell its id."""
    session = Session(ReferenceStore())
    for payload in "abc":
        await session.push(payload, transaction_id="t")
    first, second, third = session.recorder.calls
    [batch] = first.request
    lost = structs.replace(
        first, ended=None, answer=None, request=[PushBatch(batch.messages, session.mint.mint_many(1))]
    )
    other = [structs.replace(third.answer[0].results[0], id=session.mint.mint())]

    assert broken([lost, second, third]) == set()
    assert broken([lost, second, structs.replace(third, answer=[PushOutcome(other, {})])]) == {"I3"}
    assert broken([second, third]) == {"I3"}
    # In a log that messages may leave, an earlier try of one of the two may have been the first.
    assert broken([second, third], SWEPT) == set()
    assert broken([second, structs.replace(third, answer=[PushOutcome(other, {})])], SWEPT) == {"I3"}
