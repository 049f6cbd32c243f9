"""Queues of a round from their making to their last look."""

from __future__ import annotations

from skep.errors import Code, SkepError
from skep.testing.server import running_server
from tests.torture.test_load import load_client
from torture.caller import Caller
from torture.lives import empty, is_drained, until_seen
from torture.looks import look_at_figures
from torture.queues import groups_of


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


async def test_messages_that_come_alone_are_drained_without_a_wait_after_each() -> None:
    with running_server() as server:
        client = await load_client(server.url, "loose")
        caller, queue = client.caller, client.queues.of_kind["loose"]
        await caller.again.configure(queue.name, max_attempts=1)
        client.begin("push")
        await caller.push(queue.key, client.messages(queue.key, 20, plain=True))
        before = len(caller.calls)

        await empty(caller, queue, client.queues)

        pops = [call.answer[0].deliveries for call in caller.calls[before:] if call.verb == "pop"]
        assert is_drained(await look_at_figures(caller, queue.key))
        await caller.close()
    assert {len(found) for found in pops} == {0, 1}
    assert sum(not found for found in pops) == len(groups_of(queue))
