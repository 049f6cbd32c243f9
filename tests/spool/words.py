"""Words that the tests of the spool share."""

from __future__ import annotations

from skep.model import (
    MessageFilter,
    PushResult,
    PushStatus,
    QueueKey,
)
from tests.spool.driver import SpoolDriver
from tests.spool.outage import CutOff

Q = QueueKey("q")


ALL = MessageFilter(queue=Q, limit=1000)


async def has_logged(driver: SpoolDriver, payloads: list[str]) -> bool:
    return await driver.log() == payloads


def statuses(results: list[PushResult]) -> set[PushStatus]:
    return {result.status for result in results}


async def raw_log(store: CutOff, driver: SpoolDriver) -> list[str]:
    return [m.payload.decode("latin-1") for m in (await store.inner.messages(ALL, driver.clock.now())).messages]
