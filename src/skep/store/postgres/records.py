"""Receipts, entities, applied specs, endpoints and runs of pipelines."""

from __future__ import annotations

from collections.abc import Sequence

from skep.clock import Instant
from skep.model.record import (
    MAX_BYTES,
    AppRecord,
    Endpoint,
    EntityEvent,
    EntityKey,
    EntityState,
    PipelineRun,
    Receipt,
    ReceiptKey,
    Report,
)
from skep.store.postgres import apps, entities, pipelines, receipts
from skep.store.postgres.connection import Pool


class PostgresRecords:
    """Implements `skep.store.protocol.records.RecordStore`."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    # receipts and entities

    async def receipts(self, keys: Sequence[ReceiptKey], now: Instant) -> list[Receipt | None]:
        async with self._pool.connection() as connection:
            return await receipts.receipts(connection, keys, now)

    async def entities(self, keys: Sequence[EntityKey], max_bytes: int = MAX_BYTES) -> list[EntityState | None]:
        async with self._pool.connection() as connection:
            return await entities.entities(connection, keys, max_bytes)

    async def list_entities(
        self, tenant: str, type_: str, after: str = "", limit: int = 100, max_bytes: int = MAX_BYTES
    ) -> list[EntityState]:
        async with self._pool.connection() as connection:
            return await entities.list_entities(connection, tenant, type_, after, limit, max_bytes)

    async def entity_types(self, tenant: str) -> list[str]:
        async with self._pool.connection() as connection:
            return await entities.entity_types(connection, tenant)

    async def entity_events(
        self, key: EntityKey, after: int = 0, limit: int = 100, max_bytes: int = MAX_BYTES
    ) -> list[EntityEvent]:
        async with self._pool.connection() as connection:
            return await entities.entity_events(connection, key, after, limit, max_bytes)

    # applied specs

    async def put_app(self, name: str, document: bytes, now: Instant, expected: int | None = None) -> AppRecord:
        return await self._pool.transaction(lambda c: apps.put_app(c, name, document, now, expected))

    async def delete_app(self, name: str) -> bool:
        return await self._pool.transaction(lambda c: apps.delete_app(c, name))

    async def apps(self) -> list[AppRecord]:
        async with self._pool.connection() as connection:
            return await apps.apps(connection)

    async def apps_revision(self) -> int:
        async with self._pool.connection() as connection:
            return await apps.apps_revision(connection)

    # endpoints that messages are delivered to

    async def report_endpoint(
        self,
        tenant: str,
        url: str,
        report: Report,
        now: Instant,
        *,
        threshold: int,
        open_seconds: float,
        reason: str | None = None,
    ) -> Endpoint:
        return await self._pool.transaction(
            lambda c: apps.report_endpoint(c, tenant, url, report, now, threshold, open_seconds, reason)
        )

    async def endpoints(self, tenant: str, after: str = "", limit: int = 100) -> list[Endpoint]:
        async with self._pool.connection() as connection:
            return await apps.endpoints(connection, tenant, after, limit)

    async def reset_endpoint(self, tenant: str, url: str) -> bool:
        return await self._pool.transaction(lambda c: apps.reset_endpoint(c, tenant, url))

    # runs of pipelines

    async def put_run(self, tenant: str, id_: str, document: bytes, now: Instant) -> PipelineRun:
        return await self._pool.transaction(lambda c: pipelines.put_run(c, tenant, id_, document, now))

    async def runs(self, tenant: str, limit: int = 100) -> list[PipelineRun]:
        async with self._pool.connection() as connection:
            return await pipelines.runs(connection, tenant, limit)

    async def run(self, tenant: str, id_: str) -> PipelineRun | None:
        async with self._pool.connection() as connection:
            return await pipelines.run(connection, tenant, id_)
