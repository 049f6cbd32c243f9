"""The edge: what is refused, with which code, and that it never reaches the store."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from skep.clock import Instant
from skep.config import EngineSettings, Limits
from skep.engine import Engine, parse_changes, parse_settings
from skep.errors import Code, SkepError
from skep.ids import Id
from skep.model import (
    DeadLetterFilter,
    MessageFilter,
    NewMessage,
    Ordering,
    Outcome,
    PopRequest,
    PushStatus,
    QueueChanges,
    QueueKey,
    QueueSettings,
    Renewal,
    Retry,
    Seq,
    Settlement,
    Start,
    StartMode,
    Token,
)
from skep.model.queue_settings import SETTINGS, SettingKind
from tests.engine.driver import ANY, ORDERS, EngineDriver, message

LONG = "x" * 256
BAD_NAMES = ["", LONG, "a\x00b", "a\nb", "a\x7f", "\ud800", "tab\there"]
DOTS = [".", ".."]
GOOD_NAMES = ["a", "x" * 255, "Bestellungen für Köln", "注文", "a/b:c.d", "emoji 🐝", "no\u00a0break"]


@pytest.mark.parametrize("name", GOOD_NAMES)
async def test_names_may_be_any_text(driver: EngineDriver, name: str) -> None:
    key = QueueKey(name, tenant=name)
    outcome = await driver.push("1", queue=key, partition=name, transaction_id=name)

    assert outcome.results[0].status is PushStatus.STORED
    (delivery,) = await driver.pop(key, group=name, partition=name)
    assert (delivery.queue, delivery.partition, delivery.group) == (key, name, name)


@pytest.mark.parametrize("name", DOTS)
async def test_names_that_no_url_can_carry_are_refused_but_keys_may_be_any(driver: EngineDriver, name: str) -> None:
    for key in (QueueKey(name), QueueKey("q", tenant=name)):
        assert (await driver.push("1", queue=key)).results[0].code is Code.INVALID_NAME
    with pytest.raises(SkepError, match="INVALID_NAME"):
        await driver.pop(group=name)
    with pytest.raises(SkepError, match="INVALID_SETTING"):
        await driver.engine.create_queue(QueueKey("q"), QueueSettings(namespace=name))

    outcome = await driver.push("1", partition=name, transaction_id=name)
    assert outcome.results[0].status is PushStatus.STORED


@pytest.mark.parametrize("name", BAD_NAMES)
async def test_names_that_are_empty_long_or_unprintable_are_refused(driver: EngineDriver, name: str) -> None:
    for key in (QueueKey(name), QueueKey("q", tenant=name)):
        assert (await driver.push("1", queue=key)).results[0].code is Code.INVALID_NAME
        with pytest.raises(SkepError, match="INVALID_NAME"):
            await driver.pop(key)
        with pytest.raises(SkepError, match="INVALID_NAME"):
            await driver.engine.create_queue(key)
    with pytest.raises(SkepError, match="INVALID_NAME"):
        await driver.pop(group=name)
    with pytest.raises(SkepError, match="INVALID_PARTITION"):
        await driver.pop(partition=name)

    assert not driver.store.calls["push"]
    assert not driver.store.calls["pop"]


BAD_MESSAGES: list[tuple[str, dict[str, Any], Code]] = [
    *(("partition", {"partition": name}, Code.INVALID_PARTITION) for name in BAD_NAMES),
    *(("transaction id", {"transaction_id": name}, Code.INVALID_TRANSACTION_ID) for name in BAD_NAMES),
    ("trace id", {"trace_id": Id(b"short")}, Code.INVALID_TRACE_ID),
    *(
        ("payload", {"payload": payload}, Code.INVALID_PAYLOAD)
        for payload in (b"", b"{", b"NaN", b"[1,]", b'{"a":Infinity}', b"1 2", b'"\xff"', b"[" * 10_000, "text")
    ),
    ("content type", {"payload": b"raw", "content_type": ""}, Code.INVALID_PAYLOAD),
    *(
        ("headers", {"headers": headers}, Code.INVALID_HEADERS)
        for headers in (b"", b"[]", b'{"a":1}', b'{"a"', b'{"a":"' + b"x" * 20_000 + b'"}')
    ),
    ("deliver_at", {"deliver_at": Instant(-1)}, Code.INVALID_TIME),
    ("deliver_at", {"deliver_at": Instant(2**62)}, Code.INVALID_TIME),
    ("priority", {"priority": 40_000}, Code.INVALID_PRIORITY),
    ("priority", {"priority": -40_000}, Code.INVALID_PRIORITY),
]


@pytest.mark.parametrize(("what", "fields", "code"), BAD_MESSAGES)
async def test_I15_one_bad_message_refuses_its_batch_and_says_which(
    driver: EngineDriver, what: str, fields: dict[str, Any], code: Code
) -> None:
    bad = NewMessage(**{"queue": ORDERS, "payload": b"1", **fields})
    outcome = await driver.engine.push([message("1"), bad, message("2")])

    assert [result.code for result in outcome.results] == [Code.BATCH_REFUSED, code, Code.BATCH_REFUSED]
    assert all(result.status is PushStatus.REFUSED and result.reason for result in outcome.results)
    transaction = await driver.engine.transact([], [message("1"), bad])
    assert not transaction.committed
    assert [result.code for result in transaction.pushed.results] == [Code.BATCH_REFUSED, code]
    assert not driver.store.calls["push"]
    assert not driver.store.calls["transact"]


@pytest.mark.parametrize(
    "payload", [b"null", b'{"a": [1, 2.5e3, "x", true]}', b' "\xc3\xa4" ', b"1", b'"' + b"x" * 100_000 + b'"']
)
async def test_json_payloads_pass_through_unchanged(driver: EngineDriver, payload: bytes) -> None:
    await driver.engine.push([NewMessage(ORDERS, payload)])

    assert (await driver.pop())[0].payload == payload


async def test_bytes_with_a_content_type_need_not_be_json(driver: EngineDriver) -> None:
    await driver.engine.push([NewMessage(ORDERS, b"\x00\xff", content_type="application/octet-stream")])

    (delivery,) = await driver.pop()
    assert (delivery.payload, delivery.content_type) == (b"\x00\xff", "application/octet-stream")


class TestSizes:
    @pytest.fixture
    def settings(self) -> EngineSettings:
        limits = Limits(
            request_bytes=100, payload_bytes=60, headers_bytes=1, push_messages=3, pop_messages=5, pop_bytes=80
        )
        return EngineSettings(limits=limits)

    async def test_a_payload_over_the_limit_is_refused(self, driver: EngineDriver) -> None:
        outcome = await driver.push('"' + "x" * 59 + '"')
        assert outcome.results[0].code is Code.PAYLOAD_TOO_LARGE

    async def test_a_request_over_the_limit_is_refused_and_not_split(self, driver: EngineDriver) -> None:
        payload = '"' + "x" * 50 + '"'
        with pytest.raises(SkepError, match="PAYLOAD_TOO_LARGE") as refused:
            await driver.push(payload, payload)
        assert refused.value.details == {"bytes": 104, "limit": 100}
        assert not driver.store.calls["push"]

    @pytest.mark.parametrize("count", [0, 4])
    async def test_a_push_has_one_to_so_many_messages(self, driver: EngineDriver, count: int) -> None:
        with pytest.raises(SkepError, match="INVALID_REQUEST"):
            await driver.push(*["1"] * count)

    async def test_a_pop_carries_no_more_than_the_limit(self, driver: EngineDriver) -> None:
        await driver.push("1" * 40, "2" * 20, "3" * 21)

        assert [len(delivery.payload) for delivery in await driver.pop(batch=5)] == [40, 20]

    async def test_a_pop_over_several_queues_carries_no_more_either(self, driver: EngineDriver) -> None:
        for name, size in (("a", 15), ("b", 5), ("c", 60)):
            await driver.engine.create_queue(QueueKey(name), QueueSettings(namespace="shop", priority=-ord(name)))
            await driver.push("1" * size, queue=QueueKey(name))

        results = [await driver.engine.pop_matching(PopRequest(ANY, batch=5), namespace="shop") for _ in range(3)]

        assert [[len(delivery.payload) for delivery in result.deliveries] for result in results] == [[15, 5], [60], []]
        assert results[0].more

    @pytest.mark.parametrize("batch", [0, -1, 6])
    async def test_a_pop_asks_for_one_to_so_many(self, driver: EngineDriver, batch: int) -> None:
        with pytest.raises(SkepError, match="INVALID_REQUEST"):
            await driver.pop(batch=batch)


def ack(**fields: Any) -> Settlement:
    return Settlement(**{"queue": ORDERS, "partition": "p", "seq": Seq(1), "token": Token(b"t" * 16), **fields})


def renewal(**fields: Any) -> Renewal:
    return Renewal(**{"queue": ORDERS, "partition": "p", "token": Token(b"t"), "lease_seconds": 1.0, **fields})


BAD_CALLS: list[tuple[Callable[[Engine], Awaitable[object]], Code]] = [
    (lambda engine: engine.pop(PopRequest(ORDERS, lease_seconds=0)), Code.INVALID_REQUEST),
    (lambda engine: engine.pop(PopRequest(ORDERS, lease_seconds=-1)), Code.INVALID_REQUEST),
    (lambda engine: engine.pop(PopRequest(ORDERS, lease_seconds=float("nan"))), Code.INVALID_REQUEST),
    (lambda engine: engine.pop(PopRequest(ORDERS, lease_seconds=1e12)), Code.INVALID_REQUEST),
    (lambda engine: engine.pop(PopRequest(ORDERS), wait_seconds=-1), Code.INVALID_REQUEST),
    (lambda engine: engine.pop(PopRequest(ORDERS), wait_seconds=1e9), Code.INVALID_REQUEST),
    (lambda engine: engine.pop(PopRequest(ORDERS, max_partitions=-1)), Code.INVALID_REQUEST),
    (lambda engine: engine.pop(PopRequest(ORDERS, start=Start(StartMode.TIME, -1))), Code.INVALID_TIME),
    (lambda engine: engine.pop(PopRequest(ORDERS, start=Start(StartMode.SEQ, -1))), Code.INVALID_REQUEST),
    (lambda engine: engine.settle([]), Code.INVALID_REQUEST),
    (lambda engine: engine.settle([ack(seq=Seq(-1))]), Code.INVALID_REQUEST),
    (lambda engine: engine.settle([ack(seq=Seq(2**63))]), Code.INVALID_REQUEST),
    (lambda engine: engine.settle([ack(token=Token(b""))]), Code.INVALID_REQUEST),
    (lambda engine: engine.settle([ack(token=Token(b"t" * 65))]), Code.INVALID_REQUEST),
    (lambda engine: engine.settle([ack(partition="a\x00")]), Code.INVALID_PARTITION),
    (lambda engine: engine.settle([ack(group="")]), Code.INVALID_NAME),
    (lambda engine: engine.settle([ack(outcome=Outcome.NACK, retry=Retry.AT)]), Code.INVALID_TIME),
    (lambda engine: engine.settle([ack(outcome=Outcome.NACK, jitter=1.0)]), Code.INVALID_REQUEST),
    (lambda engine: engine.settle([ack(outcome=Outcome.RELEASE)]), Code.INVALID_REQUEST),
    (lambda engine: engine.renew([]), Code.INVALID_REQUEST),
    (lambda engine: engine.renew([renewal(lease_seconds=0.0)]), Code.INVALID_REQUEST),
    (lambda engine: engine.renew([renewal(partition="")]), Code.INVALID_PARTITION),
    (lambda engine: engine.transact([], []), Code.INVALID_REQUEST),
    (lambda engine: engine.list_queues(limit=0), Code.INVALID_REQUEST),
    (lambda engine: engine.list_queues(after="\x00"), Code.INVALID_REQUEST),
    (lambda engine: engine.list_queues(namespace=""), Code.INVALID_NAME),
    (lambda engine: engine.get_queue(ORDERS), Code.QUEUE_NOT_FOUND),
    (lambda engine: engine.browse.messages(MessageFilter(queue=ORDERS, limit=0)), Code.INVALID_REQUEST),
    (lambda engine: engine.browse.message(ORDERS, Seq(-5)), Code.MESSAGE_NOT_FOUND),
    (lambda engine: engine.browse.trace(Id(b"")), Code.INVALID_TRACE_ID),
    (
        lambda engine: engine.dead_letters.replay(DeadLetterFilter(queue=ORDERS, error_contains="\x00")),
        Code.INVALID_REQUEST,
    ),
]


@pytest.mark.parametrize(("call", "code"), BAD_CALLS)
async def test_a_bad_request_is_refused_with_its_code(
    engine: Engine, call: Callable[[Engine], Awaitable[object]], code: Code
) -> None:
    with pytest.raises(SkepError) as refused:
        await call(engine)
    assert refused.value.code is code


async def test_an_error_text_is_made_fit_rather_than_refused(driver: EngineDriver) -> None:
    await driver.push("1")
    (delivery,) = await driver.pop()
    await driver.nack(delivery, error="a\x00b\ud800" + "x" * 10_000)

    (sent,) = driver.store.calls["settle"][0]
    assert sent.error.startswith("a\ufffdb\ufffdx")
    assert len(sent.error) == 8_192


async def test_a_nack_with_backoff_gets_jitter_unless_it_has_some(driver: EngineDriver) -> None:
    for number in range(3):
        await driver.push("1", partition=f"p{number}")
    deliveries = await driver.pop(batch=3)
    await driver.nack(deliveries[0], Retry.BACKOFF)
    await driver.nack(deliveries[1], Retry.BACKOFF, jitter=0.5)
    await driver.nack(deliveries[2], Retry.NOW)

    jitters = [call[0].jitter for call in driver.store.calls["settle"]]
    assert 0 < jitters[0] < 1
    assert jitters[1:] == [0.5, 0.0]


BAD_SETTINGS: list[dict[str, object]] = [
    {"namespace": ""},
    {"task": "\x00"},
    {"dead_letter_queue": LONG},
    {"priority": 10**6},
    {"ordering": "sideways"},
    {"lease_seconds": 0},
    {"lease_seconds": -1.0},
    {"lease_seconds": float("inf")},
    {"max_attempts": -1},
    {"max_attempts": 1.5},
    {"initial_backoff_ms": -1},
    {"max_backoff_ms": 10**15},
    {"max_depth": -1},
    *(
        dict[str, object]({name: value})
        for name in (one.name for one in SETTINGS.values() if one.kind is SettingKind.SECONDS)
        for value in (-1, float("nan"), 1e15, "soon", True)
    ),
    {"retention_ignores_groups": 1},
    {"paused": "yes"},
]


@pytest.mark.parametrize("given", BAD_SETTINGS)
async def test_a_setting_out_of_range_is_refused(driver: EngineDriver, given: dict[str, Any]) -> None:
    for parse in (parse_settings, parse_changes):
        with pytest.raises(SkepError, match="INVALID_SETTING"):
            parse(given)
    with pytest.raises(SkepError, match="INVALID_SETTING"):
        await driver.engine.create_queue(ORDERS, QueueSettings(**given))
    with pytest.raises(SkepError, match="INVALID_SETTING"):
        await driver.engine.configure_queue(ORDERS, QueueChanges(**given))


def test_an_unknown_setting_is_named_with_the_nearest_known_one() -> None:
    with pytest.raises(SkepError, match="did you mean max_attempts") as refused:
        parse_changes({"max_attempt": 3})
    assert refused.value.details == {"setting": "max_attempt"}


def test_settings_are_read_from_names_and_values() -> None:
    assert parse_settings({"ordering": "fifo", "max_depth": 5}) == QueueSettings(ordering=Ordering.FIFO, max_depth=5)
    assert parse_changes({"task": None, "lease_seconds": 5}) == QueueChanges(task=None, lease_seconds=5.0)
