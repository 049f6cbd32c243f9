"""What a store keeps beside the logs: receipts, entities, applied specs, endpoints that messages are delivered to, pipelines.

Reached as ``store.records``. Receipts and entities are only read here: they are written in the transaction that they belong to.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

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


class RecordStore(Protocol):
    """Each verb is one transaction."""

    # receipts and entities

    async def receipts(self, keys: Sequence[ReceiptKey], now: Instant) -> list[Receipt | None]:
        """Each receipt, or None where there is none that lives."""

    async def entities(self, keys: Sequence[EntityKey], max_bytes: int = MAX_BYTES) -> list[EntityState | None]:
        """Each entity as it is now, or None; PAYLOAD_TOO_LARGE when all but the last reach ``max_bytes``."""

    async def list_entities(
        self, tenant: str, type_: str, after: str = "", limit: int = 100, max_bytes: int = MAX_BYTES
    ) -> list[EntityState]:
        """Entities of a type by id, those after ``after``; they end with the one whose state reaches ``max_bytes``."""

    async def entity_types(self, tenant: str) -> list[str]:
        """The types of which a tenant has entities, by name."""

    async def entity_events(
        self, key: EntityKey, after: int = 0, limit: int = 100, max_bytes: int = MAX_BYTES
    ) -> list[EntityEvent]:
        """An entity's events in order, those after number ``after``; none when there is no such entity.

        They end with the one whose data reaches ``max_bytes``.
        """

    # applied specs

    async def put_app(self, name: str, document: bytes, now: Instant, expected: int | None = None) -> AppRecord:
        """Store a spec under its name. With ``expected``, STORE_BUSY when that is not the revision of all apps any more."""

    async def delete_app(self, name: str) -> bool:
        """Forget a spec, which raises the revision too; False when there is none."""

    async def apps(self) -> list[AppRecord]:
        """All specs by name."""

    async def apps_revision(self) -> int:
        """A number that rises whenever an app is put or deleted."""

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
        """Note how a delivery went, and say what is known now: from ``threshold`` failures on it rests after each."""

    async def endpoints(self, tenant: str, after: str = "", limit: int = 100) -> list[Endpoint]:
        """Endpoints that a delivery ever failed to, by URL, those after ``after``."""

    async def reset_endpoint(self, tenant: str, url: str) -> bool:
        """Forget what is known of an endpoint, so that it is delivered to again; False when nothing is."""

    # runs of pipelines

    async def put_run(self, tenant: str, id_: str, document: bytes, now: Instant) -> PipelineRun:
        """Keep what a run tells of itself, in place of what it told before; only the latest runs of a tenant are kept."""

    async def runs(self, tenant: str, limit: int = 100) -> list[PipelineRun]:
        """The runs that began last, newest first."""

    async def run(self, tenant: str, id_: str) -> PipelineRun | None:
        """A run, or None."""


class HasRecords(Protocol):
    """What has them."""

    @property
    def records(self) -> RecordStore:
        """What is kept beside the logs: receipts, entities, applied specs, endpoints, runs of pipelines."""
