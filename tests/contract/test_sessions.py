"""Sessions: kept as they were made, used, ended one by one or with their key, and forgotten in time."""

from __future__ import annotations

import msgspec

from skep.clock import Instant, seconds
from skep.model.key import KeyRecord, SessionRecord
from skep.store.protocol.access import SESSIONS_MAX
from tests.contract.driver import Driver


def session(driver: Driver, name: str, owner: str = "key:a", used: float = 0.0, ends: float = 100.0) -> SessionRecord:
    now = driver.now
    owner = owner.replace("key:", f"key:{driver.tenant}-")
    return SessionRecord(
        f"{driver.tenant}-{name}", owner, now, Instant(now + seconds(used)), Instant(now + seconds(ends)), b"{}"
    )


async def test_a_session_is_there_as_it_was_put(driver: Driver) -> None:
    put = session(driver, "one")
    await driver.store.access.put_session(put)

    assert await driver.store.access.get_session(put.id) == put
    assert await driver.store.access.get_session(put.id + "x") is None


async def test_the_latest_use_of_a_session_is_known(driver: Driver) -> None:
    access, put = driver.store.access, session(driver, "one")
    await access.put_session(put)
    later, latest = Instant(driver.now + seconds(5)), Instant(driver.now + seconds(9))

    assert await access.use_session(put.id, latest)
    assert await access.use_session(put.id, later), "another server's, whose note came late"
    assert await access.get_session(put.id) == msgspec.structs.replace(put, used_at=latest)
    assert not await access.use_session(put.id + "x", later)


async def test_a_session_that_was_ended_is_gone(driver: Driver) -> None:
    access = driver.store.access
    for name in ("one", "two"):
        await access.put_session(session(driver, name))

    await access.end_session(f"{driver.tenant}-one", driver.now)
    await access.end_session(f"{driver.tenant}-one", driver.now)

    assert await access.get_session(f"{driver.tenant}-one") is None
    assert await access.get_session(f"{driver.tenant}-two") is not None


async def test_sessions_end_with_their_key(driver: Driver) -> None:
    access = driver.store.access
    await access.put_key(KeyRecord(f"{driver.tenant}-a", b"d" * 32, driver.now, b"{}"))
    for name, owner in (("one", "key:a"), ("two", "key:a"), ("other", "key:aa"), ("token", "jwt:a")):
        await access.put_session(session(driver, name, owner))

    await access.revoke_key(f"{driver.tenant}-a", driver.now, driver.now)

    found = {name: await access.get_session(f"{driver.tenant}-{name}") for name in ("one", "two", "other", "token")}
    assert [name for name, one in found.items() if one is not None] == ["other", "token"]


async def test_of_too_many_sessions_the_one_not_used_for_longest_ends(driver: Driver) -> None:
    access = driver.store.access
    for number in range(SESSIONS_MAX):
        await access.put_session(session(driver, f"{number:03}", used=0.001 * (number + 1)))
    await access.put_session(session(driver, "of-another", "key:b"))
    await access.use_session(f"{driver.tenant}-000", Instant(driver.now + seconds(50)))

    await access.put_session(session(driver, "new", used=60.0))

    assert await access.get_session(f"{driver.tenant}-001") is None
    for name in ("000", "002", "new", "of-another"):
        assert await access.get_session(f"{driver.tenant}-{name}") is not None, name


async def test_a_session_is_forgotten_when_its_time_is_over(driver: Driver) -> None:
    for name, ends in (("short", 10.0), ("long", 20.0)):
        await driver.store.access.put_session(session(driver, name, ends=ends))

    driver.clock.advance(10)
    await driver.store.sweep(driver.now, 100_000)

    assert await driver.store.access.get_session(f"{driver.tenant}-short") is None
    assert await driver.store.access.get_session(f"{driver.tenant}-long") is not None
