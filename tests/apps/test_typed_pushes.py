"""A queue that an app declares takes what fits its type, and derives partition and transaction id; others are left alone."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from typing import Any

import pyarrow as pa
import pytest

from skep.apps import catalogue
from skep.apps.applying import remove
from skep.apps.catalogue import MANY_MESSAGES
from skep.apps.compiled import DeclaredQueue
from skep.apps.fitting import fitted
from skep.engine import Engine
from skep.errors import Code, SkepError
from skep.model import NewMessage, PopRequest, PushStatus, QueueKey, QueueSettings, Seq
from skep.server.compose import Opened
from tests.apps.driver import ORDERS, SHOP, apply_text, depth, message
from tests.engine.driver import settlement

GOOD = b'{"order":"o-1","customer":"c-1","cents":1250}'


@pytest.fixture
async def engine(opened: Opened) -> Engine:
    await apply_text(opened, SHOP)
    return opened.engine


MISFITS: list[tuple[bytes, dict[str, Any]]] = [
    (b'{"order":"o","customer":"c","cents":"12"}', {"field": "cents", "value": "'12'", "expected": "int"}),
    (b'{"order":"o","customer":"c"}', {"field": "cents"}),
    (b'{"order":"o","customer":"c","cents":1,"more":2}', {"field": "more"}),
    (b"[1]", {"field": ""}),
    (b"{", {"field": ""}),
]


@pytest.mark.parametrize(("payload", "told"), MISFITS)
async def test_a_misfit_is_refused_by_index_field_and_value_and_nothing_of_its_push_is_stored(
    engine: Engine, payload: bytes, told: dict[str, Any]
) -> None:
    with pytest.raises(SkepError) as refused:
        await engine.push([message(GOOD), message(payload)])
    assert refused.value.code is Code.MESSAGE_INVALID
    assert (refused.value.details["index"], refused.value.details["queue"]) == (1, "Orders")
    assert refused.value.details["field"] == told["field"]
    assert all(str(value).strip("'") in str(refused.value.details[name]) for name, value in told.items())
    assert await depth(engine) == 0


async def test_json_that_fits_and_has_no_value_is_a_misfit_where_a_key_is_made_of_it(opened: Opened) -> None:
    spec = "app Free { queue Free { message_type { order: string, more: json }, key: order } }"
    await apply_text(opened, spec)
    with pytest.raises(SkepError) as refused:
        await opened.engine.push([message(b'{"order":"o","more":1e999}', "Free")])
    assert refused.value.code is Code.MESSAGE_INVALID
    assert "out of range" in refused.value.message


async def test_what_is_not_json_does_not_fit_a_type(engine: Engine) -> None:
    with pytest.raises(SkepError) as refused:
        await engine.push([message(b"\x00", content_type="image/png")])
    assert refused.value.code is Code.MESSAGE_INVALID
    await engine.push([message(b"\x00", "Free", content_type="image/png")])


async def test_the_key_makes_the_partition_and_the_idempotency_key_the_transaction_id(engine: Engine) -> None:
    first = await engine.push([message(GOOD)])
    again = await engine.push([message(GOOD)])
    assert [first.results[0].status, again.results[0].status] == [PushStatus.STORED, PushStatus.DUPLICATE]
    [delivery] = (await engine.pop(PopRequest(ORDERS))).deliveries
    assert (delivery.partition, delivery.transaction_id, delivery.payload) == ("c-1", "o-1", GOOD)


async def test_a_partition_that_was_given_stays_and_repeats_are_told_by_the_spec_alone(engine: Engine) -> None:
    await engine.push([message(GOOD, partition="mine", transaction_id="t"), message(GOOD, transaction_id="u")])
    assert (await engine.push([message(GOOD, transaction_id="v")])).results[0].status is PushStatus.DUPLICATE
    deliveries = (await engine.pop(PopRequest(ORDERS, batch=10))).deliveries
    assert sorted((one.partition, one.transaction_id) for one in deliveries) == [("c-1", "o-1"), ("mine", "o-1")]


async def test_a_transaction_with_a_misfit_settles_nothing(engine: Engine) -> None:
    await engine.push([message(b"1", "Free")])
    [delivery] = (await engine.pop(PopRequest(QueueKey("Free")))).deliveries
    with pytest.raises(SkepError) as refused:
        await engine.transact([settlement(delivery)], [message(b'{"order":1}')])
    assert refused.value.code is Code.MESSAGE_INVALID
    assert (await engine.browse.queue_stats(QueueKey("Free"))).in_flight == 1
    outcome = await engine.transact([settlement(delivery)], [message(GOOD)])
    assert outcome.committed
    assert outcome.pushed.results[0].transaction_id == "o-1"


async def test_dead_letters_of_any_shape_lie_in_a_declared_dead_letter_queue(engine: Engine) -> None:
    await engine.push([message(b'"no such type"', "Lost")])
    assert await depth(engine, "Lost") == 1


async def test_a_large_push_is_looked_at_to_its_last_message(engine: Engine) -> None:
    rows = [message(b'{"order":"o-%d","customer":"c-%d","cents":1}' % (n, n % 7)) for n in range(2_000)]
    with pytest.raises(SkepError) as refused:
        await engine.push([*rows, message(b"{}")])
    assert refused.value.details["index"] == 2_000
    assert not (await engine.push(rows)).refused
    assert await depth(engine) == 2_000


async def test_columns_are_held_to_the_type_too_and_get_their_partitions(opened: Opened) -> None:
    await apply_text(
        opened, "app Rows { queue Rows { message_type { n: int, k: string }, ordering: per_key, key: k } }"
    )
    engine, key = opened.engine, QueueKey("Rows")
    good = [b'{"n":%d,"k":"k%d"}' % (n, n % 3) for n in range(1_000)]
    with pytest.raises(SkepError) as refused:
        await engine.push_columns(key, pa.record_batch({"payload": [*good, b'{"n":"x","k":"k"}']}))
    assert (refused.value.code, refused.value.details["index"]) == (Code.MESSAGE_INVALID, 1_000)
    assert await depth(engine, "Rows") == 0
    await engine.push_columns(key, pa.record_batch({"payload": good}))
    await engine.push_columns(key, pa.record_batch({"partition": ["given"], "payload": good[:1]}))
    read = await engine.log.read(key, Seq(1), Seq(2_000))
    partitions = read.batch.column("partition").to_pylist()
    assert (partitions[:4], partitions[-1]) == (["k0", "k1", "k2", "k0"], "given")


async def test_columns_have_no_room_for_transaction_ids(engine: Engine) -> None:
    with pytest.raises(SkepError) as refused:
        await engine.push_columns(ORDERS, pa.record_batch({"payload": [GOOD]}))
    assert refused.value.code is Code.INVALID_REQUEST


UNFIT_KEYS = [
    (b'{"a":{}}', "must be a text or a whole number"),
    (b'{"a":true}', "must be a text or a whole number"),
    (b'{"a":""}', "must be a text or a whole number"),
    (b"{}", "has no value"),
]


@pytest.mark.parametrize(("payload", "reason"), UNFIT_KEYS)
async def test_a_key_that_is_none_is_the_messages_fault(opened: Opened, payload: bytes, reason: str) -> None:
    await apply_text(opened, "app Any { queue Any { key: message.a } }")
    with pytest.raises(SkepError) as refused:
        await opened.engine.push([message(payload, "Any")])
    assert refused.value.code is Code.MESSAGE_INVALID
    assert reason in refused.value.message
    await opened.engine.push([message(b'{"a":17}', "Any")])
    [delivery] = (await opened.engine.pop(PopRequest(QueueKey("Any")))).deliveries
    assert delivery.partition == "17"


async def test_other_queues_and_other_tenants_are_left_alone(engine: Engine) -> None:
    await engine.push([message(b"1", "Undeclared"), message(b"1", tenant="acme")])
    assert await depth(engine, tenant="acme") == 1


async def test_nothing_is_asked_while_no_app_declares_a_queue(opened: Opened) -> None:
    assert not asks(opened)
    await apply_text(opened, SHOP)
    assert asks(opened)
    await remove(opened.engine, opened.catalogue, "Shop")
    assert not asks(opened)
    await opened.engine.push([message(b"1")])


def asks(opened: Opened) -> bool:
    return opened.engine.declared is not None


TENANTED = """app Hooks {
  queue In { message_type { n: int }, delivery { max_attempts: 7, dead_letter_queue: Lost } }
  queue Lost { retention { max_depth: 50 } }
  webhook W { queue: In, verify: none, tenant: path, message { n: payload.n } }
}
"""


async def test_an_app_whose_webhooks_take_tenants_is_every_tenants(opened: Opened) -> None:
    engine = opened.engine
    await apply_text(opened, TENANTED)
    with pytest.raises(SkepError):
        await engine.push([message(b"{}", "In", "acme")])
    pushes = [engine.push([message(b'{"n":1}', "In", "acme")]) for _ in range(5)]
    await asyncio.gather(*pushes)
    assert (await engine.get_queue(QueueKey("In", "acme"))).settings.max_attempts == 7
    assert (await engine.get_queue(QueueKey("Lost", "acme"))).settings.max_depth == 50
    assert await depth(engine, "In", "acme") == 5

    await apply_text(opened, TENANTED.replace("max_attempts: 7", "max_attempts: 9"))
    await engine.push_columns(QueueKey("In", "acme"), pa.record_batch({"payload": [b'{"n":1}']}))
    assert (await engine.get_queue(QueueKey("In", "acme"))).settings.max_attempts == 9


async def test_a_tenants_queue_that_cannot_follow_its_spec_still_takes_messages(opened: Opened) -> None:
    engine = opened.engine
    key = QueueKey("In", "acme")
    await engine.create_queue(key, QueueSettings())
    await engine.push([NewMessage(key, b'{"n":0}')])
    await apply_text(opened, TENANTED.replace("queue In {", "queue In { ordering: unordered,"))
    await engine.push([message(b'{"n":1}', "In", "acme")])
    assert await depth(engine, "In", "acme") == 2


@pytest.mark.parametrize("count", [10, MANY_MESSAGES + 1])
async def test_large_batches_are_looked_at_in_the_thread_for_evaluations(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    seen: Counter[str] = Counter()

    def observed(declared: DeclaredQueue, message: NewMessage, index: int) -> NewMessage:
        seen[threading.current_thread().name.partition("_")[0]] += 1
        return fitted(declared, message, index)

    monkeypatch.setattr(catalogue, "fitted", observed)
    await engine.push([message(b'{"order":"%d","customer":"c-1","cents":1250}' % number) for number in range(count)])
    assert seen == {"skep-evaluation" if count > MANY_MESSAGES else "MainThread": count}
    assert await depth(engine) == count
