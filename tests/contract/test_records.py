"""Messages in quarantine, applied specs, and endpoints."""

from __future__ import annotations

import pytest

from skep.clock import Instant, seconds
from skep.errors import Code, SkepError
from skep.model import NO_DEAD_LETTER_QUEUE, NO_GROUP, DeadReason, PushStatus
from skep.model.record import Buried, DeliveryEndpoint, Report, Unfit
from tests.contract.driver import Driver, payloads

URL = "https://example.invalid/hook"


async def test_an_invalid_message_goes_straight_to_the_dead_letters(driver: Driver) -> None:
    message = driver.message("bad", partition="p", transaction_id="t", headers=b'{"a":"b"}', priority=3)
    id_ = driver.mint.mint()

    outcome = await driver.store.quarantine(message, id_, "no such field", driver.receipt("k"), driver.now)

    assert [(r.status, r.id, r.seq) for r in outcome.results] == [(PushStatus.STORED, id_, 1)]
    assert outcome.depths[driver.key("q.dead")].depth == 1
    (letter,) = await driver.dead()
    assert (letter.reason, letter.error, letter.attempts) == (DeadReason.INVALID, "no such field", 0)
    assert (letter.source_queue, letter.source_seq, letter.group) == ("q", 0, NO_GROUP)
    assert (letter.id, letter.trace_id, letter.partition, letter.transaction_id) == (id_, id_, "p", "t")
    assert (letter.payload, letter.headers, letter.failed_at) == (b"bad", b'{"a":"b"}', driver.now)
    assert await driver.pop() == []
    assert await driver.recorded("k") == ['"done"']
    await driver.check_accounts()


async def test_a_receipt_keeps_a_repeated_invalid_message_out(driver: Driver) -> None:
    message, receipt = driver.message("bad"), driver.receipt("k")
    await driver.store.quarantine(message, driver.mint.mint(), "bad", receipt, driver.now)

    outcome = await driver.store.quarantine(message, driver.mint.mint(), "bad", receipt, driver.now)

    assert (outcome.results, outcome.recorded) == ([], b'"done"')
    assert len(await driver.dead()) == 1


async def test_unfit_messages_of_a_log_are_buried_once_and_stay_in_it(driver: Driver) -> None:
    await driver.push("a", partition="p", headers=b'{"a":"b"}', transaction_id="t")
    await driver.push("b", "c")
    pushed = driver.now
    driver.clock.advance(5)
    receipt, expires = driver.receipt("k").key, Instant(driver.now + seconds(60))
    unfit = [Unfit(1, "no number"), Unfit(3, "no name"), Unfit(9, "never was there")]

    told = await driver.store.bury_unfit(driver.key(), unfit, receipt, expires, driver.now)
    again = await driver.store.bury_unfit(driver.key(), unfit, receipt, expires, driver.now)

    assert told == again == Buried("q", "q.dead", 2, 1)
    first, second = await driver.dead()
    assert (first.payload, first.partition, first.headers, first.transaction_id) == (b"a", "p", b'{"a":"b"}', "t")
    assert (first.source_queue, first.source_seq, first.reason, first.group) == ("q", 1, DeadReason.INVALID, NO_GROUP)
    assert (first.error, first.attempts, first.created_at, first.failed_at) == ("no number", 0, pushed, driver.now)
    assert (second.payload, second.source_seq, second.error) == (b"c", 3, "no name")
    assert sorted(payloads(await driver.pop(batch=9))) == ["a", "b", "c"]
    await driver.check_accounts()


async def test_unfit_messages_of_a_queue_without_dead_letters_are_left_out(driver: Driver) -> None:
    await driver.create(dead_letter_queue=NO_DEAD_LETTER_QUEUE)
    await driver.push("a")
    told = await driver.store.bury_unfit(
        driver.key(), [Unfit(1, "no")], driver.receipt("k").key, Instant(driver.now + seconds(60)), driver.now
    )
    assert told == Buried("q", None, 0, 0)


async def test_a_replayed_invalid_message_is_for_all_groups(driver: Driver) -> None:
    await driver.push("first")
    for group in "gh":
        await driver.pop(group=group, auto_ack=True)
    await driver.store.quarantine(driver.message("mended"), driver.mint.mint(), "bad", None, driver.now)

    (replayed,) = await driver.replay()

    assert replayed.queue == driver.key()
    assert payloads(await driver.pop(group="g")) == ["mended"]
    assert payloads(await driver.pop(group="h")) == ["mended"]
    assert payloads(await driver.pop(group="new")) == ["first", "mended"]
    assert await driver.dead() == []


async def test_a_quarantine_that_is_full_takes_no_more_while_what_was_taken_still_finds_its_grave(
    driver: Driver,
) -> None:
    await driver.create("graves", max_depth=1)
    await driver.create("q", dead_letter_queue="graves", max_attempts=1)
    message = driver.message("bad")
    first = await driver.store.quarantine(message, driver.mint.mint(), "bad", driver.receipt("k"), driver.now)
    full = await driver.store.quarantine(message, driver.mint.mint(), "bad", driver.receipt("l"), driver.now)
    await driver.push("taken")
    await driver.reject(*await driver.pop())

    assert [(r.status, r.code) for outcome in (first, full) for r in outcome.results] == [
        (PushStatus.STORED, None),
        (PushStatus.REFUSED, Code.QUEUE_FULL),
    ]
    assert await driver.recorded("k", "l") == ['"done"', None]
    assert [letter.payload for letter in await driver.dead("graves")] == [b"bad", b"taken"]


async def test_a_queue_without_dead_letters_keeps_no_invalid_message(driver: Driver) -> None:
    await driver.create(dead_letter_queue="none")

    outcome = await driver.store.quarantine(
        driver.message("bad"), driver.mint.mint(), "bad", driver.receipt("k"), driver.now
    )

    assert [(r.status, r.code) for r in outcome.results] == [(PushStatus.REFUSED, Code.MESSAGE_INVALID)]
    assert await driver.recorded("k") == [None]


async def test_the_revision_rises_with_every_change_of_any_app(driver: Driver) -> None:
    store, one, two = driver.store, f"{driver.tenant}-one", f"{driver.tenant}-two"
    start = await store.records.apps_revision()

    first = await store.records.put_app(one, b'{"v":1}', driver.now)
    second = await store.records.put_app(two, b"{}", driver.now)
    third = await store.records.put_app(one, b'{"v":2}', driver.now)

    assert [app.revision - start for app in (first, second, third)] == [1, 2, 3]
    assert [app for app in await store.records.apps() if app.name in (one, two)] == [third, second]
    assert await store.records.delete_app(two)
    assert not await store.records.delete_app(two)
    assert await store.records.apps_revision() == start + 4
    assert [app.name for app in await store.records.apps() if app.name in (one, two)] == [one]
    assert await store.records.delete_app(one)


async def test_an_app_is_put_only_onto_the_revision_that_was_looked_at(driver: Driver) -> None:
    store, name = driver.store, f"{driver.tenant}-app"
    revision = await store.records.apps_revision()
    await store.records.put_app(name, b"{}", driver.now, revision)

    with pytest.raises(SkepError) as caught:
        await store.records.put_app(name, b'{"late":true}', driver.now, revision)

    assert caught.value.code is Code.STORE_BUSY
    assert [app.document for app in await store.records.apps() if app.name == name] == [b"{}"]
    await store.records.delete_app(name)


async def report(driver: Driver, said: Report, reason: str | None = None, url: str = URL) -> DeliveryEndpoint:
    return await driver.store.records.report_endpoint(
        driver.tenant, url, said, driver.now, threshold=3, open_seconds=30, reason=reason
    )


async def test_an_endpoint_rests_after_some_failures_and_after_each_that_follows(driver: Driver) -> None:
    for number in (1, 2):
        endpoint = await report(driver, Report.FAILED, "refused")
        assert (endpoint.failures, endpoint.open_until) == (number, None)

    endpoint = await report(driver, Report.FAILED, "timed out")
    assert (endpoint.failures, endpoint.open_until, endpoint.reason) == (3, driver.later(30), "timed out")
    driver.clock.advance(30)
    endpoint = await report(driver, Report.FAILED, "timed out")
    assert (endpoint.failures, endpoint.open_until) == (4, driver.later(30))

    endpoint = await report(driver, Report.DELIVERED)
    assert (endpoint.failures, endpoint.open_until, endpoint.stopped_at) == (0, None, None)
    assert await driver.store.records.endpoints(driver.tenant) == [endpoint]


async def test_an_endpoint_that_is_gone_stays_so_until_it_is_reset(driver: Driver) -> None:
    gone = await report(driver, Report.GONE, "410")
    assert gone.stopped_at == driver.now
    driver.clock.advance(1)

    assert (await report(driver, Report.DELIVERED)).stopped_at == gone.stopped_at
    assert (await report(driver, Report.GONE, "410")).stopped_at == gone.stopped_at
    assert await driver.store.records.reset_endpoint(driver.tenant, URL)
    assert not await driver.store.records.reset_endpoint(driver.tenant, URL)
    assert await driver.store.records.endpoints(driver.tenant) == []


async def test_success_alone_leaves_nothing_behind(driver: Driver) -> None:
    endpoint = await report(driver, Report.DELIVERED)

    assert (endpoint.failures, endpoint.url, endpoint.tenant) == (0, URL, driver.tenant)
    assert await driver.store.records.endpoints(driver.tenant) == []


async def test_endpoints_come_by_url_in_pages(driver: Driver) -> None:
    for url in ("c", "a", "b"):
        await report(driver, Report.FAILED, url=url)

    assert [e.url for e in await driver.store.records.endpoints(driver.tenant, limit=2)] == ["a", "b"]
    assert [e.url for e in await driver.store.records.endpoints(driver.tenant, "b")] == ["c"]
