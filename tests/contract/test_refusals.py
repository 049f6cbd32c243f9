"""Refused requests to webhooks: the newest of each are kept, in their order, and no more than so many."""

from __future__ import annotations

from skep.clock import Instant
from skep.model.refusal import Refusal
from skep.store.protocol.refusals import REFUSALS_KEPT
from tests.contract.driver import Driver


def refusals(driver: Driver, webhook: str, count: int, first: int = 0) -> list[Refusal]:
    return [
        Refusal(
            f"{driver.tenant}-{webhook}", Instant(driver.now + number), "SIGNATURE_INVALID", 401, "not ours", "::1",
            f'headers a; body "…" {number}', driver.tenant, "q",
        )
        for number in range(first, first + count)
    ]  # fmt: skip


async def test_refusals_are_told_newest_first_as_they_were_noted(driver: Driver) -> None:
    noted = refusals(driver, "a", 3)
    await driver.store.refusals.note(noted[:2])
    await driver.store.refusals.note(noted[2:])

    assert await driver.store.refusals.list(f"{driver.tenant}-a") == noted[::-1]
    assert await driver.store.refusals.list(f"{driver.tenant}-a", 1) == noted[:1:-1]
    assert await driver.store.refusals.list(f"{driver.tenant}-b") == []


async def test_of_each_webhook_so_many_are_kept_whatever_others_refuse(driver: Driver) -> None:
    quiet, loud = refusals(driver, "quiet", 2), refusals(driver, "loud", REFUSALS_KEPT + 50)
    await driver.store.refusals.note([*quiet, *loud[:120]])
    await driver.store.refusals.note(loud[120:])

    assert await driver.store.refusals.list(f"{driver.tenant}-quiet") == quiet[::-1]
    assert await driver.store.refusals.list(f"{driver.tenant}-loud", 1_000) == loud[: -REFUSALS_KEPT - 1 : -1]


async def test_the_latest_of_all_webhooks_are_told_together(driver: Driver) -> None:
    [one] = refusals(driver, "a", 1)
    [other] = refusals(driver, "b", 1)
    await driver.store.refusals.note([one, other])

    assert (await driver.store.refusals.list())[:2] == [other, one]


async def test_a_flood_at_one_webhook_hides_no_other_where_all_are_told(driver: Driver) -> None:
    quiet, loud = refusals(driver, "quiet", 2), refusals(driver, "loud", REFUSALS_KEPT)
    await driver.store.refusals.note([*quiet, *loud])

    told = [one for one in await driver.store.refusals.list(None, 3) if one.tenant == driver.tenant]

    assert told == [*loud[:-4:-1], *quiet[::-1]]


async def test_noting_nothing_is_nothing(driver: Driver) -> None:
    await driver.store.refusals.note([])
