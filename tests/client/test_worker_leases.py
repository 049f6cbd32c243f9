"""The leases of a worker: how long each is kept, and that no ack is left behind."""

from __future__ import annotations

import asyncio

import pytest

import skep
from skep.client.worker import settling
from skep.client.worker.keeping import Keeping
from skep.client.worker.settling import Settling
from skep.model import SettleStatus
from skep.wire.messages import Ack


async def test_a_lease_is_kept_until_the_last_of_its_holders_lets_it_go(async_client: skep.AsyncClient) -> None:
    keeping = Keeping(async_client, 30.0)
    for _ in range(2):
        keeping.hold("lease")

    keeping.release("lease")
    assert keeping.holds("lease")
    keeping.release("lease")
    assert not keeping.holds("lease")


async def test_a_renewal_that_fails_ends_no_other_and_loses_no_lease(
    async_client: skep.AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    keeping = Keeping(async_client, 30.0)
    keeping.hold("no lease of any server")

    await keeping.renew(["no lease of any server"])

    assert "1 leases could not be renewed" in caplog.text
    assert not keeping.lost("no lease of any server")


async def test_a_lease_that_is_let_go_while_it_is_renewed_is_forgotten(async_client: skep.AsyncClient) -> None:
    await async_client.push("orders", [1])
    [message] = await async_client.pop("orders")
    keeping = Keeping(async_client, 30.0)
    keeping.hold(message.lease_id)
    await async_client.ack(message)  # so that the server knows no such lease any more

    renewing = asyncio.create_task(keeping.renew([message.lease_id]))
    keeping.release(message.lease_id)
    await renewing

    assert not keeping.lost(message.lease_id)


async def test_acks_beyond_one_request_go_with_the_next(
    async_client: skep.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settling, "MAX_ACKS", 2)
    await async_client.push("orders", list(range(5)))
    messages = await async_client.pop("orders", batch=5)
    acks = Settling(async_client)

    told = [acks.settle(one, Ack(one.lease_id, one.seq)) for one in messages]
    assert acks._sending is not None
    await acks._sending

    assert all(one.done() for one in told)
    assert {result.status for result in await asyncio.gather(*told) if result is not None} == {SettleStatus.COMPLETED}
