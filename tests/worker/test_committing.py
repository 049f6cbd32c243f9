"""Batches of commands: what is done again, what waits, and how many transactions they take."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from random import Random

import msgspec
import pytest

from skep.client import calls
from skep.client.async_client import AsyncClient
from skep.client.worker.source import Source
from skep.clock import SystemClock
from skep.spec import App
from skep.wire.messages import PoppedMessage
from skep.worker.claims import Claims
from skep.worker.committing import Committing, Known, Prepared
from skep.worker.plan import plans
from tests.worker.killing import Relay
from tests.worker.place import Place
from tests.worker.test_entities import ACCOUNTS, assert_sound


class Clerk:
    """One who commits batches of deposits, and whose transactions are counted."""

    def __init__(self, app: App, source: Source, relay: Relay) -> None:
        plan = next(one for one in plans(app, {}) if one.queue == "Deposits")
        self.claims = Claims()
        self.source = source
        self._relay = relay
        self._committing = Committing(plan, SystemClock(), self.claims, Random(1))

    @property
    def transactions(self) -> int:
        return self._relay.requests.count("POST /api/v1/transaction")

    async def pop(self, count: int) -> list[PoppedMessage]:
        """So many messages: a pop that meets a chore of the server may find less."""
        asked = calls.pop("Deposits", {"batch": 100, "partitions": 0, "lease_seconds": 60})
        found: list[PoppedMessage] = []
        async with asyncio.timeout(30):
            while len(found) < count:
                found += await self.source.pop(asked)
        return found

    async def commit(self, messages: list[PoppedMessage]) -> None:
        await self._committing.run(self.source, messages)


@asynccontextmanager
async def clerk_in(place: Place, app: App) -> AsyncIterator[Clerk]:
    relay = Relay(place.url, wanted=0, answered=True, kill=lambda: None)
    settings = msgspec.structs.replace(place.client.settings, urls=(await relay.start(),))
    async with AsyncClient.like(settings, SystemClock()) as client:
        source = Source(client, "Deposits", 60)
        yield Clerk(app, source, relay)
        await source.close()
    await relay.stop()


async def test_messages_that_were_done_already_are_acked_with_their_batch(place: Place) -> None:
    app = place.app(ACCOUNTS)
    place.client.push("Deposits", [{"account": "a-1", "cents": 500}, {"account": "a-2", "cents": 7}])
    async with clerk_in(place, app.spec) as clerk:
        await clerk.commit(await clerk.pop(2))
        place.client.seek("Deposits", "__QUEUE_MODE__", "beginning")
        place.client.push("Deposits", {"account": "a-1", "cents": 1})
        again = await clerk.pop(3)
        before = clerk.transactions
        await clerk.commit(again)

        assert clerk.transactions - before == 1
    assert assert_sound(place, app, "a-1")["state"]["cents"] == 501
    assert place.depth("Deposits") == 0


async def test_after_a_message_that_failed_nothing_of_its_lease_is_tried(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    app = place.app(ACCOUNTS.replace("max_depth: 100000", "max_depth: 2"))
    place.client.push("Deposits", [{"account": f"a-{n}", "cents": 1000} for n in range(4)])
    async with clerk_in(place, app.spec) as clerk:
        await clerk.commit(await clerk.pop(4))

    # For what follows the third there is no room. The fourth comes again behind it: its lease was not lost, it has ended.
    assert (place.depth("Deposits"), len(place.payloads("Receipts"))) == (2, 2)
    assert "a lease was lost" not in caplog.text


async def test_a_batch_waits_for_another_of_its_process_that_changes_the_same_entity(place: Place) -> None:
    app = place.app(ACCOUNTS)
    for number in range(3):
        place.client.push("Deposits", {"account": f"a-{number}", "cents": 5}, partition=f"p-{number}")
    async with clerk_in(place, app.spec) as clerk:
        first, *others = await clerk.pop(3)
        account = first.partition.replace("p", "a")
        async with clerk.claims.all_of({(clerk.source.tenant, "Account", account)}):
            waiting = asyncio.create_task(clerk.commit([first]))
            for other in others:
                await clerk.commit([other])
            assert clerk.transactions == len(others) == 2
        await waiting
        assert clerk.transactions == 3
    assert [assert_sound(place, app, f"a-{n}")["state"]["cents"] for n in range(3)] == [5, 5, 5]


async def test_a_message_that_others_overtake_again_and_again_is_decided_anew_each_time(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = place.app(ACCOUNTS)
    for number in range(3):
        place.client.push("Deposits", {"account": "a-1", "cents": 5}, partition=f"p-{number}")
    async with clerk_in(place, app.spec) as clerk, clerk_in(place, app.spec) as faster:
        slow, *others = await clerk.pop(3)
        known = clerk._committing._known

        async def overtaken(source: Source, prepared: Sequence[Prepared]) -> Known:
            found = await known(source, prepared)
            if others:
                await faster.commit([others.pop()])
            return found

        monkeypatch.setattr(clerk._committing, "_known", overtaken)
        await clerk.commit([slow])

        assert (clerk.transactions, faster.transactions) == (3, 2)
    assert assert_sound(place, app, "a-1")["state"]["cents"] == 15
    assert place.depth("Deposits") == 0
