"""Queues of tenants: the queues of an app for all tenants are created by the spec at the first push.

A tenant's queue follows the spec at its first use on a server after the spec was applied. A change that cannot be made then
(the order of a queue with unsettled messages) is logged, and blocks no push.
"""

from __future__ import annotations

from collections.abc import Iterable

import structlog

from skep.engine import Engine
from skep.errors import Code, SkepError
from skep.model import QueueKey, QueueSettings
from skep.spec import Action, App, plan
from skep.spec.validate import dead_letter_queues

KNOWN_QUEUES = 100_000
"""The most queues that are remembered. Beyond that all are forgotten, and checked again when they are used."""

log = structlog.get_logger("skep.apps")


async def known_settings(engine: Engine, names: Iterable[str], tenant: str) -> dict[str, QueueSettings]:
    """The settings of the queues that exist, by name."""
    known = {}
    for name in names:
        try:
            known[name] = (await engine.get_queue(QueueKey(name, tenant))).settings
        except SkepError as error:
            if error.code is not Code.QUEUE_NOT_FOUND:
                raise
    return known


class TenantQueues:
    """The queues of tenants that are known to match their spec."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._known: set[QueueKey] = set()

    def knows(self, key: QueueKey) -> bool:
        """Whether a queue was checked against its spec."""
        return key in self._known

    def forget(self) -> None:
        """Check each queue again: a spec has changed."""
        self._known.clear()

    async def make(self, app: App, key: QueueKey) -> None:
        """Make a queue as the spec says, or change it to that; its dead-letter queue comes first."""
        name = key.name
        holder = dead_letter_queues(app).get(name)
        names = [one for one in (holder, name) if one is not None and one in app.queues]
        for change in plan(app, await known_settings(self._engine, names, key.tenant)):
            if change.queue not in names or change.action is Action.LEAVE:
                continue
            try:
                await self._engine.configure_queue(QueueKey(change.queue, key.tenant), change.settings)
            except SkepError as error:
                if change.action is Action.CREATE or error.retryable:
                    raise
                log.warning(
                    "a tenant's queue could not be changed to its spec",
                    tenant=key.tenant, queue=change.queue, code=error.code, error=error.message,
                )  # fmt: skip
        if len(self._known) >= KNOWN_QUEUES:
            self._known.clear()
        self._known.add(key)
