"""Queues: made, read, changed, listed, deleted; and the rules about dead-letter queues."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec
import pytest

from skep.errors import Code, SkepError
from skep.model import (
    FROM_BEGINNING,
    FROM_NOW,
    NO_DEAD_LETTER_QUEUE,
    ClearScope,
    Ordering,
    PushStatus,
    QueueChanges,
    QueueKey,
    QueueSettings,
)
from skep.model.queue_settings import SETTINGS, Setting, SettingKind
from tests.contract.driver import Driver, payloads


async def test_a_new_queue_has_the_documented_defaults(driver: Driver) -> None:
    queue = await driver.create()

    assert queue.key == driver.key()
    assert queue.settings == QueueSettings()
    assert not queue.holds_dead_letters
    assert queue.created_at == queue.updated_at == driver.now
    assert await driver.store.get_queue(driver.key()) == queue


async def test_every_setting_is_kept(driver: Driver) -> None:
    changed = msgspec.structs.replace(QueueSettings(), **{name: other(setting) for name, setting in SETTINGS.items()})
    assert all(getattr(changed, name) != setting.default for name, setting in SETTINGS.items())
    await driver.store.create_queue(driver.key(), changed, driver.now)

    queue = await driver.store.get_queue(driver.key())
    assert queue is not None
    assert queue.settings == changed

    await driver.store.update_queue(driver.key(), back_to_defaults(), driver.now)

    queue = await driver.store.get_queue(driver.key())
    assert queue is not None
    assert queue.settings == QueueSettings()


def other(setting: Setting) -> object:
    """A value that is not the default, and not that of a neighbour either."""
    number = list(SETTINGS).index(setting.name) + 2
    values: dict[SettingKind, object] = {
        SettingKind.NAME: f"name {number}", SettingKind.WHOLE: number, SettingKind.SECONDS: number + 0.5, SettingKind.SWITCH: not setting.default,
        SettingKind.ORDERING: Ordering.UNORDERED,
    }  # fmt: skip
    return values[setting.kind]


def back_to_defaults() -> QueueChanges:
    return msgspec.structs.replace(QueueChanges(), **{name: setting.default for name, setting in SETTINGS.items()})


async def test_a_queue_cannot_be_created_twice(driver: Driver) -> None:
    await driver.create(priority=1)

    with pytest.raises(SkepError) as caught:
        await driver.create(priority=2)

    assert caught.value.code is Code.QUEUE_EXISTS
    queue = await driver.store.get_queue(driver.key())
    assert queue is not None
    assert queue.settings.priority == 1


async def test_an_update_changes_only_what_is_given(driver: Driver) -> None:
    await driver.create(namespace="shop", max_attempts=5, priority=3)
    driver.clock.advance(10)

    queue = await driver.update(priority=8, namespace=None)

    assert queue.settings == QueueSettings(namespace=None, max_attempts=5, priority=8)
    assert queue.updated_at == driver.now
    assert queue.created_at < queue.updated_at
    assert await driver.store.get_queue(driver.key()) == queue


async def test_updating_an_unknown_queue_is_an_error(driver: Driver) -> None:
    with pytest.raises(SkepError) as caught:
        await driver.update("nowhere", priority=1)

    assert caught.value.code is Code.QUEUE_NOT_FOUND


async def test_ordering_changes_only_while_nothing_is_unsettled(driver: Driver) -> None:
    await driver.create()
    await driver.push("a")
    delivery = await driver.pop_one()

    with pytest.raises(SkepError) as caught:
        await driver.update(ordering=Ordering.UNORDERED)
    assert caught.value.code is Code.INVALID_SETTING

    await driver.ack(delivery)
    assert (await driver.update(ordering=Ordering.UNORDERED)).settings.ordering is Ordering.UNORDERED
    await driver.push("b")
    assert payloads(await driver.pop()) == ["b"]


async def test_a_change_of_ordering_leaves_the_old_log_behind(driver: Driver) -> None:
    await driver.push("old", partition="1")
    await driver.ack(*await driver.pop())
    await driver.update(ordering=Ordering.FIFO)
    await driver.push("new", partition="2")

    assert payloads(await driver.pop(group="late")) == ["new"]
    assert (await driver.seek(FROM_BEGINNING, group="late")).pushed == 1


async def test_an_unknown_queue_is_none(driver: Driver) -> None:
    assert await driver.store.get_queue(driver.key("nowhere")) is None


async def test_queues_are_listed_by_name_in_pages(driver: Driver) -> None:
    for name in ("d", "b", "a", "c"):
        await driver.create(name)

    first = await driver.store.list_queues(driver.tenant, limit=3)
    rest = await driver.store.list_queues(driver.tenant, after=first[-1].key.name, limit=3)

    assert [queue.key.name for queue in first] == ["a", "b", "c"]
    assert [queue.key.name for queue in rest] == ["d"]


async def test_queues_are_listed_by_namespace_and_task(driver: Driver) -> None:
    await driver.create("a", namespace="shop", task="mail")
    await driver.create("b", namespace="shop", task="bill")
    await driver.create("c", task="mail")

    async def names(namespace: str | None, task: str | None) -> list[str]:
        queues = await driver.store.list_queues(driver.tenant, namespace=namespace, task=task)
        return [queue.key.name for queue in queues]

    assert await names("shop", None) == ["a", "b"]
    assert await names(None, "mail") == ["a", "c"]
    assert await names("shop", "mail") == ["a"]
    assert await names("nowhere", None) == []


async def test_tenants_share_names_and_nothing_else(driver: Driver) -> None:
    other = Driver(driver.store, driver.clock, driver.tenant + "-other")
    await driver.push("ours")
    await other.push("theirs")

    assert payloads(await driver.pop()) == ["ours"]
    assert payloads(await other.pop()) == ["theirs"]
    assert await driver.delete()
    assert await driver.store.get_queue(QueueKey("q", other.tenant)) is not None


async def test_tenants_with_queues_are_listed_in_pages(driver: Driver) -> None:
    for suffix in ("-b", "-a", "-c"):
        await Driver(driver.store, driver.clock, driver.tenant + suffix).create()

    first = await driver.store.tenants(after=driver.tenant, limit=2)
    rest = await driver.store.tenants(after=first[-1], limit=1)

    assert first == [driver.tenant + "-a", driver.tenant + "-b"]
    assert rest == [driver.tenant + "-c"]


async def test_a_deleted_queue_is_gone_with_all_it_held(driver: Driver) -> None:
    first = await driver.create(max_attempts=7)
    await driver.push("old", transaction_id="t")
    stale = await driver.pop_one()

    assert await driver.delete()
    assert await driver.store.get_queue(driver.key()) is None
    assert await driver.store.list_queues(driver.tenant) == []
    with pytest.raises(SkepError) as caught:
        await driver.pop()
    assert caught.value.code is Code.QUEUE_NOT_FOUND

    again = await driver.create()
    assert again.id != first.id
    assert again.settings == QueueSettings()
    (result,) = await driver.push("new", transaction_id="t")
    assert result.status is PushStatus.STORED
    (refused,) = await driver.ack(stale)
    assert refused.code is Code.STALE_LEASE
    assert payloads(await driver.pop()) == ["new"]


async def test_deleting_an_unknown_queue_says_so(driver: Driver) -> None:
    assert not await driver.delete("nowhere")


CALLS: dict[str, Callable[[Driver], Awaitable[object]]] = {
    "pop": lambda driver: driver.pop("nowhere"),
    "queue_stats": lambda driver: driver.queue_stats("nowhere"),
    "clear": lambda driver: driver.clear(ClearScope.ALL, "nowhere"),
    "seek": lambda driver: driver.seek(FROM_NOW, "nowhere"),
    "promote": lambda driver: driver.promote("nowhere"),
    "expire": lambda driver: driver.expire("nowhere"),
    "retain": lambda driver: driver.retain("nowhere"),
}


@pytest.mark.parametrize("verb", CALLS)
async def test_an_unknown_queue_is_an_error(driver: Driver, verb: str) -> None:
    with pytest.raises(SkepError) as caught:
        await CALLS[verb](driver)

    assert caught.value.code is Code.QUEUE_NOT_FOUND


# dead-letter rules


async def test_a_queue_cannot_hold_its_own_dead_letters(driver: Driver) -> None:
    with pytest.raises(SkepError) as caught:
        await driver.create("a", dead_letter_queue="a")
    assert caught.value.code is Code.DEAD_LETTER_SELF
    assert await driver.store.get_queue(driver.key("a")) is None

    await driver.create("a")
    with pytest.raises(SkepError) as caught:
        await driver.update("a", dead_letter_queue="a")
    assert caught.value.code is Code.DEAD_LETTER_SELF


async def test_a_missing_dead_letter_queue_is_made_at_once(driver: Driver) -> None:
    await driver.create("a", dead_letter_queue="graves")
    await driver.create("b")
    await driver.update("b", dead_letter_queue="tombs")

    for name in ("graves", "tombs"):
        made = await driver.store.get_queue(driver.key(name))
        assert made is not None
        assert made.holds_dead_letters
        assert made.settings.max_attempts == 0
        assert made.settings.dead_letter_queue == NO_DEAD_LETTER_QUEUE


async def test_the_default_dead_letter_queue_is_made_when_first_needed(driver: Driver) -> None:
    await driver.create()
    assert await driver.store.get_queue(driver.key("q.dead")) is None
    await driver.push("a")

    await driver.reject(await driver.pop_one())

    made = await driver.store.get_queue(driver.key("q.dead"))
    assert made is not None
    assert made.holds_dead_letters


async def test_a_used_queue_may_not_name_a_dead_letter_queue_of_its_own(driver: Driver) -> None:
    await driver.create("a", dead_letter_queue="b")

    with pytest.raises(SkepError) as caught:
        await driver.update("b", dead_letter_queue="c")

    assert caught.value.code is Code.DEAD_LETTER_CHAIN
    assert await driver.store.get_queue(driver.key("c")) is None


async def test_a_queue_used_by_default_may_not_name_one_either(driver: Driver) -> None:
    await driver.create("a")

    with pytest.raises(SkepError) as caught:
        await driver.create("a.dead", dead_letter_queue="c")

    assert caught.value.code is Code.DEAD_LETTER_CHAIN


@pytest.mark.parametrize("by", ["create", "update"])
async def test_a_queue_may_not_name_one_that_names_another(driver: Driver, by: str) -> None:
    await driver.create("b", dead_letter_queue="c")
    if by == "update":
        await driver.create("a")

    with pytest.raises(SkepError) as caught:
        await (driver.create if by == "create" else driver.update)("a", dead_letter_queue="b")

    assert caught.value.code is Code.DEAD_LETTER_CHAIN


async def test_a_dead_letter_queue_in_use_cannot_be_deleted(driver: Driver) -> None:
    await driver.create("a", dead_letter_queue="b")

    with pytest.raises(SkepError) as caught:
        await driver.delete("b")
    assert caught.value.code is Code.DEAD_LETTER_QUEUE_IN_USE
    assert caught.value.details["used_by"] == "a", "who has to change is named"

    await driver.update("a", dead_letter_queue=NO_DEAD_LETTER_QUEUE)
    assert await driver.delete("b")


async def test_a_dead_letter_queue_may_go_after_its_last_user(driver: Driver) -> None:
    await driver.create("a", dead_letter_queue="b")

    assert await driver.delete("a")
    assert await driver.delete("b")


async def test_two_queues_may_share_a_dead_letter_queue(driver: Driver) -> None:
    await driver.create("a", dead_letter_queue="graves")
    await driver.create("b", dead_letter_queue="graves")
    await driver.push("from a", queue="a")
    await driver.push("from b", queue="b")

    await driver.reject(await driver.pop_one("a"), await driver.pop_one("b"))

    letters = await driver.dead("graves")
    assert sorted(letter.source_queue for letter in letters) == ["a", "b"]


async def test_a_dead_letter_queue_in_another_tenant_is_another_queue(driver: Driver) -> None:
    other = Driver(driver.store, driver.clock, driver.tenant + "-other")
    await other.create("b", dead_letter_queue="c")

    await driver.create("a", dead_letter_queue="b")

    made = await driver.store.get_queue(driver.key("b"))
    assert made is not None
    assert made.holds_dead_letters


async def test_a_dead_letter_queue_with_the_default_setting_has_none_itself(driver: Driver) -> None:
    await driver.create("graves", max_attempts=1)
    await driver.create("a", dead_letter_queue="graves")
    await driver.push("x", queue="graves")

    (result,) = await driver.reject(await driver.pop_one("graves"))

    assert result.status.value == "discarded"
    assert await driver.store.get_queue(driver.key("graves.dead")) is None
