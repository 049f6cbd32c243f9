"""Queues of a round from their making to their last look."""

from __future__ import annotations

from skep.errors import Code, SkepError
from torture.caller import Caller
from torture.lives import until_seen


async def test_a_look_that_was_refused_is_made_again_whatever_was_noted_before() -> None:
    caller = Caller(["http://127.0.0.1:1"], "client")
    answers: list[SkepError | None] = []

    async def asked(answer: SkepError | None) -> None:
        if answer is not None:
            raise answer

    async def look() -> None:
        await caller.note("stats", None, asked(answers.pop(0)), lambda _: "figures")

    for looks in (1, 2):
        answers += [SkepError(Code.SERVER_BUSY, "later"), None]
        await until_seen(caller, look)
        assert [call.answer for call in caller.calls] == ["figures"] * looks
    await caller.close()
