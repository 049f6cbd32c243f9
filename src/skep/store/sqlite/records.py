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
from skep.store.sqlite import apps, entities, pipelines, receipts
from skep.store.sqlite.access import Running


class SqliteRecords:
    """Implements `skep.store.protocol.records.RecordStore` with the store's own threads."""

    def __init__(self, write: Running, read: Running) -> None:
        self._write = write
        self._read = read

    # receipts and entities

    async def receipts(self, keys: Sequence[ReceiptKey], now: Instant) -> list[Receipt | None]:
        """Each receipt."""
        return await self._read(lambda session: receipts.receipts(session, keys, now))

    async def entities(self, keys: Sequence[EntityKey], max_bytes: int = MAX_BYTES) -> list[EntityState | None]:
        """Each entity as it is now."""
        return await self._read(lambda session: entities.entities(session, keys, max_bytes))

    async def list_entities(
        self, tenant: str, type_: str, after: str = "", limit: int = 100, max_bytes: int = MAX_BYTES
    ) -> list[EntityState]:
        """Entities of a type by id."""
        return await self._read(lambda session: entities.list_entities(session, tenant, type_, after, limit, max_bytes))

    async def entity_types(self, tenant: str) -> list[str]:
        """The types of which a tenant has entities."""
        return await self._read(lambda session: entities.entity_types(session, tenant))

    async def entity_events(
        self, key: EntityKey, after: int = 0, limit: int = 100, max_bytes: int = MAX_BYTES
    ) -> list[EntityEvent]:
        """An entity's events in order."""
        return await self._read(lambda session: entities.entity_events(session, key, after, limit, max_bytes))

    # applied specs

    async def put_app(self, name: str, document: bytes, now: Instant, expected: int | None = None) -> AppRecord:
        """Store a spec under its name."""
        return await self._write(lambda session: apps.put_app(session, name, document, now, expected))

    async def delete_app(self, name: str) -> bool:
        """Forget a spec."""
        return await self._write(lambda session: apps.delete_app(session, name))

    async def apps(self) -> list[AppRecord]:
        """All specs by name."""
        return await self._read(lambda session: apps.apps(session))

    async def apps_revision(self) -> int:
        """A number that rises whenever an app is put or deleted."""
        return await self._read(lambda session: apps.apps_revision(session))

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
        """Note how a delivery went."""
        return await self._write(
            lambda session: apps.report_endpoint(session, tenant, url, report, now, threshold, open_seconds, reason)
        )

    async def endpoints(self, tenant: str, after: str = "", limit: int = 100) -> list[Endpoint]:
        """Endpoints that a delivery ever failed to."""
        return await self._read(lambda session: apps.endpoints(session, tenant, after, limit))

    async def reset_endpoint(self, tenant: str, url: str) -> bool:
        """Forget what is known of an endpoint."""
        return await self._write(lambda session: apps.reset_endpoint(session, tenant, url))

    # runs of pipelines

    async def put_run(self, tenant: str, id_: str, document: bytes, now: Instant) -> PipelineRun:
        """Keep what a run tells of itself."""
        return await self._write(lambda session: pipelines.put_run(session, tenant, id_, document, now))

    async def runs(self, tenant: str, limit: int = 100) -> list[PipelineRun]:
        """The latest runs."""
        return await self._read(lambda session: pipelines.runs(session, tenant, limit))

    async def run(self, tenant: str, id_: str) -> PipelineRun | None:
        """A run, or None."""
        return await self._read(lambda session: pipelines.run(session, tenant, id_))
