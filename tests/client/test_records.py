"""Apps, entities, receipts and endpoints by the client. Apps are the server's, so each test has names of its own."""

from __future__ import annotations

import itertools

import msgspec
import pytest

import skep
from skep.errors import Code, SkepError
from skep.spec import load

NUMBERS = itertools.count(1)


def test_an_app_is_applied_seen_and_forgotten(client: skep.Client) -> None:
    name = f"Client{next(NUMBERS)}"
    app = load(f"app {name} {{ queue {name} {{ message_type {{ n: int }} }} }}", "a.skep")
    assert client.apply(app, dry_run=True).revision is None
    applied = client.apply(app)
    assert [change.queue for change in applied.changes] == [name]
    assert name in {one.app for one in client.apps()}
    document = msgspec.json.decode(client.app(name).document)
    assert client.apply(document).changes == []
    assert client.remove_app(name).parts[0].name == name
    with pytest.raises(SkepError) as gone:
        client.app(name)
    assert gone.value.code is Code.APP_NOT_FOUND


def test_I15_effects_and_receipts_go_with_the_transaction(client: skep.Client) -> None:
    client.push("orders", [1])
    [order] = client.pop("orders")
    with client.transaction() as tx:
        tx.ack(order)
        tx.effect("Order", "1", version=0, events=[("Placed", {"n": 1})], state={"n": 1}, cause=order.id)
        tx.receipt("command", order.id, answer={"ok": True}, window_seconds=60)
    tx = client.transaction()
    tx.effect("Order", "1", version=1, events=[("Placed", {"n": 2})], state={"n": 2})
    tx.receipt("command", order.id, window_seconds=60)
    with pytest.raises(SkepError) as again:
        tx.commit()
    assert again.value.code is Code.RECEIPT_EXISTS
    assert client.entity_types() == ["Order"]
    assert [one.version for one in client.entities("Order")] == [1]
    assert bytes(client.entity("Order", "1").state) == b'{"n":1}'
    assert [event.cause for event in client.entity_events("Order", "1")] == [order.id]
    read = client.read_entities([("Order", "1"), ("Order", "2")], [("command", order.id)])
    assert (read.entities[1], read.receipts[0] is not None) == (None, True)
    assert read.receipts[0] is not None
    assert bytes(read.receipts[0].answer) == b'{"ok":true}'


def test_entities_and_events_are_fetched_page_by_page(client: skep.Client) -> None:
    with client.transaction() as tx:
        for number in range(150):
            tx.effect("Thing", f"{number:03}", version=0, events=[("Made", {})] * (150 if not number else 1), state={})
    assert len(list(client.entities("Thing"))) == 150
    assert [event.number for event in client.entity_events("Thing", "000")] == list(range(1, 151))


def test_tenants_and_endpoints_are_seen(client: skep.Client) -> None:
    client.push("orders", [1])
    assert client.settings.tenant in set(client.tenants())
    url = "https://example.com/a"
    assert client.report_endpoint(url, "failed", reason="503", threshold=1).open_until is not None
    assert [one.reason for one in client.endpoints()] == ["503"]
    assert client.reset_endpoint(url) is True
    assert list(client.endpoints()) == []


async def test_the_same_for_asyncio(client: skep.Client) -> None:
    async with skep.AsyncClient(client.settings.urls, tenant=client.settings.tenant) as other:
        async with other.transaction() as tx:
            tx.effect("Order", "9", version=0, events=[("Placed", {})], state={})
        assert (await other.entity("Order", "9")).version == 1
        assert [one.id async for one in other.entities("Order")] == ["9"]
