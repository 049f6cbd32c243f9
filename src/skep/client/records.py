# Written by dev/twins.py from async_records.py: change that, and run it.

"""Applied apps, entities and endpoints, for threads: the part of the client for what is kept beside the log."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from skep.client import access_calls, encryption_calls, record_calls
from skep.client.sender import Sender
from skep.model.record import Report
from skep.wire.access import AuditView, GrantItem, KeyMade, KeyView
from skep.wire.apps import AppDetail, Applied, AppRemoved, AppSummary
from skep.wire.encryption import DataKeyView, Rewrapped, Shredded
from skep.wire.endpoints import EndpointView
from skep.wire.entities import EntitiesReadResponse, EntityView, EventView
from skep.wire.refusals import RefusalView

if TYPE_CHECKING:
    from skep.spec import App

T = TypeVar("T")


class Records(Sender):
    """What a client can see and change of apps, entities and endpoints."""

    # apps

    def apply(self, app: App | Mapping[str, Any], *, dry_run: bool = False) -> Applied:
        """Apply an app, or its document as JSON has it; ``dry_run`` only says what would change."""
        return self.run(record_calls.apply(app, dry_run))

    def apps(self) -> list[AppSummary]:
        """All applied apps by name."""
        return (self.run(record_calls.apps())).apps

    def app(self, name: str) -> AppDetail:
        """An applied app with its whole spec."""
        return self.run(record_calls.app(name))

    def remove_app(self, name: str, *, dry_run: bool = False) -> AppRemoved:
        """Forget an app; its queues stay, with all they hold."""
        return self.run(record_calls.remove_app(name, dry_run))

    # who may do what

    def create_key(
        self,
        name: str,
        grants: Sequence[GrantItem],
        *,
        expires_at: datetime | None = None,
        requests_per_second: float | None = None,
    ) -> KeyMade:
        """Make a key; its text is told once, and only here. It grants nothing that this client's own key does not."""
        return self.run(access_calls.create_key(name, grants, expires_at, requests_per_second))

    def keys(self) -> Iterator[KeyView]:
        """All keys by id, page by page; revoked ones for 30 days."""
        after: str | None = None
        while True:
            page = self.run(access_calls.keys(after))
            yield from page.keys
            if (after := page.after) is None:
                return

    def revoke_key(self, id_: str, *, force: bool = False) -> KeyView:
        """Let a key count no longer; KEY_NOT_FOUND when there is none.

        LAST_ADMIN_KEY when it is this client's own and the last one that administers its tenants, unless you say ``force``.
        """
        return self.run(access_calls.revoke_key(id_, force))

    def audit(self, *, everywhere: bool = False) -> Iterator[AuditView]:
        """What admins did to this tenant, or to all and to the server itself, newest first."""
        after: int | None = None
        while True:
            page = self.run(access_calls.audit(after, everywhere))
            yield from page.entries
            if (after := page.after) is None:
                return

    # keys of encrypted queues

    def data_keys(self) -> list[DataKeyView]:
        """The keys of encrypted queues, oldest first: which they are, never what they are."""
        return (self.run(encryption_calls.data_keys())).keys

    def rotate_data_key(self, queue: str) -> DataKeyView:
        """Give a queue a new key for what comes; the keys it had go on opening what they sealed."""
        return self.run(encryption_calls.rotate(queue))

    def rewrap_data_keys(self) -> Rewrapped:
        """Wrap all keys by the server's current master key."""
        return self.run(encryption_calls.rewrap())

    def shred_data_keys(self, queue: str | None = None, *, dry_run: bool = False) -> Shredded:
        """Destroy the keys of a queue, or of all: what they sealed can never be read again."""
        return self.run(encryption_calls.shred(queue, dry_run))

    # entities

    def refusals(self, webhook: str) -> list[RefusalView]:
        """The last requests that a webhook refused, newest first, at most 100."""
        return (self.run(record_calls.refusals(webhook))).refusals

    def entity_types(self) -> list[str]:
        """The types of which there are entities."""
        return (self.run(record_calls.entity_types())).types

    def entities(self, type_: str) -> Iterator[EntityView]:
        """All entities of a type by id, page by page."""
        after: str | None = None
        while True:
            page = self.run(record_calls.entities(type_, after))
            yield from page.entities
            if (after := page.after) is None:
                return

    def entity(self, type_: str, id_: str) -> EntityView:
        """An entity as it is now; ENTITY_NOT_FOUND when there is none."""
        return self.run(record_calls.entity(type_, id_))

    def entity_events(self, type_: str, id_: str) -> Iterator[EventView]:
        """All events of an entity, the first one first."""
        after: int | None = None
        while True:
            page = self.run(record_calls.entity_events(type_, id_, after))
            yield from page.events
            if (after := page.after) is None:
                return

    def read_entities(
        self, entities: Iterable[tuple[str, str]] = (), receipts: Iterable[tuple[str, str]] = ()
    ) -> EntitiesReadResponse:
        """Many entities, by type and id, and receipts, by scope and key, in one request; None where there is none."""
        return self.run(record_calls.read_entities(entities, receipts))

    # tenants and endpoints

    def tenants(self) -> Iterator[str]:
        """The tenants that have queues, page by page."""
        after: str | None = None
        while True:
            page = self.run(record_calls.tenants(after))
            yield from page.tenants
            if (after := page.after) is None:
                return

    def endpoints(self) -> Iterator[EndpointView]:
        """Addresses that a delivery failed to, page by page."""
        after: str | None = None
        while True:
            page = self.run(record_calls.endpoints(after))
            yield from page.endpoints
            if (after := page.after) is None:
                return

    def report_endpoint(
        self,
        url: str,
        report: Report | Literal["delivered", "failed", "gone"],
        *,
        reason: str | None = None,
        threshold: int = 5,
        open_seconds: float = 30.0,
    ) -> EndpointView:
        """Say how a delivery went, and hear whether to go on: see ``open_until`` and ``stopped_at``."""
        return self.run(record_calls.report_endpoint(url, report, reason, threshold, open_seconds))

    def reset_endpoint(self, url: str) -> bool:
        """Deliver to an endpoint again; False when nothing was known of it."""
        return (self.run(record_calls.reset_endpoint(url))).reset
