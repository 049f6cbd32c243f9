"""Keys and the audit log: what was put is there, revoked once, told in order, and forgotten in time."""

from __future__ import annotations

from skep.clock import Instant, seconds
from skep.model.key import AuditDetail, AuditEntry, KeyRecord
from tests.contract.driver import Driver


def after(driver: Driver, later: float) -> Instant:
    return Instant(driver.now + seconds(later))


def key(driver: Driver, name: str, **fields: Instant | None) -> KeyRecord:
    return KeyRecord(f"{driver.tenant}-{name}", b"d" * 32, driver.now, b'{"name":"x"}', **fields)


async def test_a_key_is_there_as_it_was_put(driver: Driver) -> None:
    put = key(driver, "a", expires_at=after(driver, 10), forget_at=after(driver, 20))

    assert await driver.store.access.put_key(put)
    assert await driver.store.access.get_key(put.id) == put
    assert await driver.store.access.get_key(put.id + "x") is None


async def test_keys_are_listed_by_id_page_by_page(driver: Driver) -> None:
    access = driver.store.access
    for name in ("c", "a", "b"):
        await access.put_key(key(driver, name))

    first = await access.list_keys(driver.tenant, 2)
    rest = [one for one in await access.list_keys(first[-1].id) if one.id.startswith(f"{driver.tenant}-")]

    assert [one.id[-1] for one in first + rest] == ["a", "b", "c"]


async def test_a_key_is_revoked_once(driver: Driver) -> None:
    access = driver.store.access
    await access.put_key(key(driver, "a"))
    at, forget_at = driver.now, after(driver, 100)

    revoked = await access.revoke_key(f"{driver.tenant}-a", at, forget_at)
    again = await access.revoke_key(f"{driver.tenant}-a", after(driver, 5), after(driver, 500))

    assert revoked is not None
    assert (revoked.revoked_at, revoked.forget_at) == (at, forget_at)
    assert again == revoked
    assert await access.revoke_key(f"{driver.tenant}-nobody", at, forget_at) is None


async def test_a_revoked_key_is_forgotten_when_its_time_has_come(driver: Driver) -> None:
    access = driver.store.access
    for name in ("a", "b"):
        await access.put_key(key(driver, name))
    await access.revoke_key(f"{driver.tenant}-a", driver.now, after(driver, 100))

    driver.clock.advance(99)
    await driver.store.sweep(driver.now, 100_000)
    assert await access.get_key(f"{driver.tenant}-a") is not None
    driver.clock.advance(1)
    await driver.store.sweep(driver.now, 100_000)

    assert await access.get_key(f"{driver.tenant}-a") is None
    assert await access.get_key(f"{driver.tenant}-b") is not None


def entry(driver: Driver, action: str, tenant: str | None = None) -> AuditEntry:
    return AuditEntry(
        at=driver.now, actor="key:a", action=action, tenant=tenant or driver.tenant, expires_at=after(driver, 50)
    )


async def test_an_audit_entry_tells_how_it_went_once_that_is_known(driver: Driver) -> None:
    access = driver.store.access
    position = await access.note_audit(entry(driver, "delete", "unknown yet"))
    [begun] = [one for one in await access.list_audit("unknown yet") if one.position == position]
    detail = AuditDetail(verb="seek group", target="☃", count=3, before="seq 1", after="seq 4")
    await access.finish_audit(position, driver.tenant, ["orders", "☃"], "done", detail)

    [done] = await access.list_audit(driver.tenant)
    assert (begun.outcome, begun.queues, begun.action, begun.detail) == (None, (), "delete", None)
    assert done.detail == detail
    assert (done.outcome, done.queues, done.position, done.actor) == ("done", ("orders", "☃"), position, "key:a")


async def test_audit_entries_are_told_newest_first_page_by_page_and_by_tenant(driver: Driver) -> None:
    access = driver.store.access
    for number in range(3):
        await access.note_audit(entry(driver, str(number)))
        await access.note_audit(entry(driver, "x", driver.tenant + "-other"))

    first = await access.list_audit(driver.tenant, limit=2)
    rest = await access.list_audit(driver.tenant, before=first[-1].position)
    latest = await access.list_audit(limit=1)

    assert [one.action for one in first + rest] == ["2", "1", "0"]
    assert [(one.action, one.tenant) for one in latest] == [("x", driver.tenant + "-other")]


async def test_an_audit_entry_is_forgotten_in_time(driver: Driver) -> None:
    await driver.store.access.note_audit(entry(driver, "old"))
    driver.clock.advance(10)
    await driver.store.access.note_audit(entry(driver, "young"))

    driver.clock.advance(40)
    await driver.store.sweep(driver.now, 100_000)

    assert [one.action for one in await driver.store.access.list_audit(driver.tenant)] == ["young"]


async def test_whether_keys_are_asked_for_is_remembered_and_a_new_key_says_yes(driver: Driver) -> None:
    access = driver.store.access
    for closed in (False, True, False):
        await access.set_closed(closed, driver.now)
        assert await access.is_closed() is closed
    await access.put_key(key(driver, "a"))
    assert await access.is_closed() is True
    await access.revoke_key(f"{driver.tenant}-a", driver.now, driver.now)
    await driver.store.sweep(driver.now, 100_000)
    assert await access.is_closed() is True
