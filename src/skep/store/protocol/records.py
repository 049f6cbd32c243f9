"""Records beside the logs: receipts, entities, applied specs, endpoints that messages are delivered to, pipelines.

Reached as ``store.records``. These verbs only read receipts and entities; pushes and transactions write them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from skep.clock import Instant
from skep.model.record import (
    MAX_BYTES,
    AppRecord,
    DeliveryEndpoint,
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
        """Each receipt; None when it does not exist or has expired."""

    async def entities(self, keys: Sequence[EntityKey], max_bytes: int = MAX_BYTES) -> list[EntityState | None]:
        """Each entity in its present state, or None; PAYLOAD_TOO_LARGE when all but the last reach ``max_bytes``."""

    async def list_entities(
        self, tenant: str, type_: str, after: str = "", limit: int = 100, max_bytes: int = MAX_BYTES
    ) -> list[EntityState]:
        """Entities of a type by id, after the id ``after``. The entity whose state reaches ``max_bytes`` is the last."""

    async def entity_types(self, tenant: str) -> list[str]:
        """The types of a tenant's entities, by name."""

    async def entity_events(
        self, key: EntityKey, after: int = 0, limit: int = 100, max_bytes: int = MAX_BYTES
    ) -> list[EntityEvent]:
        """An entity's events after number ``after``, in order; none when there is no such entity.

        The event whose data reaches ``max_bytes`` is the last.
        """

    # applied specs

    async def put_app(self, name: str, document: bytes, now: Instant, expected: int | None = None) -> AppRecord:
        """Store a spec under its name. With ``expected``, STORE_BUSY when the revision of all apps is another by now."""

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
    ) -> DeliveryEndpoint:
        """Note the outcome of a delivery; returns the endpoint's state. From ``threshold`` failures on, each failure opens the breaker."""

    async def endpoints(self, tenant: str, after: str = "", limit: int = 100) -> list[DeliveryEndpoint]:
        """Endpoints with failed deliveries, by URL, after the URL ``after``."""

    async def reset_endpoint(self, tenant: str, url: str) -> bool:
        """Forget the failures of an endpoint, so that messages are delivered again; False when there are none."""

    # runs of pipelines

    async def put_run(self, tenant: str, id_: str, document: bytes, now: Instant) -> PipelineRun:
        """Store the report of a run, in place of its earlier one. Only the latest runs of a tenant are kept."""

    async def runs(self, tenant: str, limit: int = 100) -> list[PipelineRun]:
        """The runs that began last, newest first."""

    async def run(self, tenant: str, id_: str) -> PipelineRun | None:
        """A run, or None."""


class HasRecords(Protocol):
    """A store that has records."""

    @property
    def records(self) -> RecordStore:
        """Receipts, entities, applied specs, endpoints, and runs of pipelines."""
