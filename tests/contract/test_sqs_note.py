"""What the SQS door keeps with a queue."""

from __future__ import annotations

import pytest

from skep.errors import Code, SkepError
from tests.contract.driver import Driver


async def test_a_note_is_kept_until_another_replaces_it(driver: Driver) -> None:
    await driver.create()
    store, key = driver.store, driver.key()
    assert await store.sqs_note(key) is None
    assert await store.keep_sqs_note(key, b"first", None, driver.now)
    assert await store.keep_sqs_note(key, b"second", b"first", driver.now)
    assert await store.sqs_note(key) == b"second"


async def test_a_note_that_somebody_changed_meanwhile_stays(driver: Driver) -> None:
    await driver.create()
    store, key = driver.store, driver.key()
    await store.keep_sqs_note(key, b"first", None, driver.now)
    assert not await store.keep_sqs_note(key, b"mine", None, driver.now)
    assert not await store.keep_sqs_note(key, b"mine", b"other", driver.now)
    assert await store.sqs_note(key) == b"first"


async def test_a_note_goes_with_its_queue(driver: Driver) -> None:
    await driver.create()
    store, key = driver.store, driver.key()
    await store.keep_sqs_note(key, b"first", None, driver.now)
    await driver.delete()
    assert await store.sqs_note(key) is None
    with pytest.raises(SkepError) as refused:
        await store.keep_sqs_note(key, b"second", None, driver.now)
    assert refused.value.code is Code.QUEUE_NOT_FOUND
    await driver.create()
    assert await store.sqs_note(key) is None
