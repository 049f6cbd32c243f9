"""The calls about apps, entities, receipts and endpoints, which are kept beside the log. Nothing here sends anything."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Raw

from skep.client.exchange import ApiCall, path_part
from skep.client.method import PagedList, call, delete, get, listed, pages, part, post, put
from skep.client.outgoing import encode
from skep.errors import Code, SkepError
from skep.model.record import Report
from skep.wire.apps import AppDetail, Applied, AppRemoved, AppsResponse, AppSummary
from skep.wire.endpoints import EndpointReport, EndpointReset, EndpointsResponse, EndpointView, EndpointWasReset
from skep.wire.entities import (
    EffectItem,
    EntitiesReadRequest,
    EntitiesReadResponse,
    EntitiesResponse,
    EntityName,
    EntityTypesResponse,
    EntityView,
    EventItem,
    EventsResponse,
    EventView,
    ReceiptItem,
    ReceiptName,
)
from skep.wire.queues import TenantsResponse
from skep.wire.refusals import RefusalsResponse, RefusalView

if TYPE_CHECKING:
    from skep.spec import App

APPS = "/api/v1/apps"
ENTITIES = "/api/v1/entities"
ENDPOINTS = "/api/v1/endpoints"
Events = Iterable[tuple[str, object]]
"""Names of events, each with its data."""


class RecordCalls:
    """The client's calls about apps, entities and endpoints."""

    @call
    def apply(self, app: App | Mapping[str, Any], *, dry_run: bool = False) -> ApiCall[Applied]:
        """Apply an app, or its document as JSON has it; ``dry_run`` only says what would change."""
        document = _document(app)
        path = f"{APPS}/{path_part(str(document.get('name', '')))}"
        return put(path, Applied, document, {"dry_run": dry_run or None})

    @call
    def apps(self) -> ApiCall[list[AppSummary]]:
        """All applied apps by name."""
        return part(get(APPS, AppsResponse), lambda answer: answer.apps)

    @call
    def app(self, name: str) -> ApiCall[AppDetail]:
        """An applied app with its whole spec."""
        return get(f"{APPS}/{path_part(name)}", AppDetail)

    @call
    def remove_app(self, name: str, *, dry_run: bool = False) -> ApiCall[AppRemoved]:
        """Remove an app. Its queues stay, with all their messages."""
        return delete(f"{APPS}/{path_part(name)}", AppRemoved, {"dry_run": dry_run})

    @call
    def refusals(self, webhook: str) -> ApiCall[list[RefusalView]]:
        """The last requests that a webhook refused, newest first, at most 100."""
        asked = get(f"/api/v1/webhooks/{path_part(webhook)}/refusals", RefusalsResponse)
        return part(asked, lambda answer: answer.refusals)

    # entities

    @call
    def entity_types(self) -> ApiCall[list[str]]:
        """The entity types that have entities."""
        return part(get(ENTITIES, EntityTypesResponse), lambda answer: answer.types)

    @pages
    def entities(self, type_: str) -> PagedList[EntityView]:
        """All entities of a type by id, page by page."""
        return listed(f"{ENTITIES}/{path_part(type_)}", EntitiesResponse, lambda page: page.entities)

    @call
    def entity(self, type_: str, id_: str) -> ApiCall[EntityView]:
        """An entity as it is now; ENTITY_NOT_FOUND when there is none."""
        return get(f"{ENTITIES}/{path_part(type_)}/{path_part(id_)}", EntityView)

    @pages
    def entity_events(self, type_: str, id_: str) -> PagedList[EventView]:
        """All events of an entity, oldest first."""
        path = f"{ENTITIES}/{path_part(type_)}/{path_part(id_)}/events"
        return listed(path, EventsResponse, lambda page: page.events)

    @call
    def read_entities(
        self, entities: Iterable[tuple[str, str]] = (), receipts: Iterable[tuple[str, str]] = ()
    ) -> ApiCall[EntitiesReadResponse]:
        """Many entities, by type and id, and receipts, by scope and key, in one request; None where there is none."""
        wanted = EntitiesReadRequest([EntityName(*one) for one in entities], [ReceiptName(*one) for one in receipts])
        return post(f"{ENTITIES}/read", EntitiesReadResponse, wanted)

    # tenants and endpoints

    @pages
    def tenants(self) -> PagedList[str]:
        """The tenants that have queues, page by page."""
        return listed("/api/v1/resources/tenants", TenantsResponse, lambda page: page.tenants)

    @pages
    def endpoints(self) -> PagedList[EndpointView]:
        """Addresses that a delivery failed to, page by page."""
        return listed(ENDPOINTS, EndpointsResponse, lambda page: page.endpoints)

    @call
    def report_endpoint(
        self,
        url: str,
        report: Report | Literal["delivered", "failed", "gone"],
        *,
        reason: str | None = None,
        threshold: int = 5,
        open_seconds: float = 30.0,
    ) -> ApiCall[EndpointView]:
        """Report the outcome of a delivery. The answer says whether to go on: see ``open_until`` and ``stopped_at``."""
        told = EndpointReport(url, Report(report), reason, threshold, open_seconds)
        return post(f"{ENDPOINTS}/report", EndpointView, told)

    @call
    def reset_endpoint(self, url: str) -> ApiCall[bool]:
        """Deliver to an endpoint again; False when nothing was known of it."""
        return part(post(f"{ENDPOINTS}/reset", EndpointWasReset, EndpointReset(url)), lambda answer: answer.reset)


def _document(app: App | Mapping[str, Any]) -> Mapping[str, Any]:
    if isinstance(app, str | PurePath) or not (isinstance(app, Mapping) or hasattr(app, "queues")):
        cure = 'skep.App.load("orders.skep").spec, or skep.spec.load(text, "orders.skep")'
        raise SkepError(Code.INVALID_REQUEST, f"an app is wanted, not {app!r}: {cure}")
    if isinstance(app, Mapping):
        return app
    from skep.spec import to_document  # a program that applies no apps does not load the spec language

    return to_document(app)


def effect(entity: str, id_: str, version: int, events: Events, state: object, cause: str | None) -> EffectItem:
    """An effect, encoded now: later changes of the caller's objects do not change it."""
    items = [EventItem(name, Raw(encode(data))) for name, data in events]
    return EffectItem(entity, id_, version, items, Raw(encode(state)), cause)


def receipt(scope: str, key: str, answer: object, window_seconds: float) -> ReceiptItem:
    """A receipt, encoded now."""
    return ReceiptItem(scope, key, Raw(encode(answer)), window_seconds)
