"""The calls for what is kept beside the log: applied apps, entities, receipts and endpoints. Nothing here sends anything."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Raw

from skep.client.admin_calls import PAGE_ROWS, delete, get, post
from skep.client.exchange import ApiCall, Request, path_part
from skep.client.outgoing import encode
from skep.client.reading import reader
from skep.errors import Code, SkepError
from skep.model.record import Report
from skep.wire.apps import AppDetail, Applied, AppRemoved, AppsResponse
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
    ReceiptItem,
    ReceiptName,
)
from skep.wire.queues import TenantsResponse
from skep.wire.refusals import RefusalsResponse

if TYPE_CHECKING:
    from skep.spec import App

APPS = "/api/v1/apps"
ENTITIES = "/api/v1/entities"
ENDPOINTS = "/api/v1/endpoints"
Events = Iterable[tuple[str, object]]
"""Names of events, each with its data."""

_applied = reader(Applied)


def apply(app: App | Mapping[str, Any], dry_run: bool) -> ApiCall[Applied]:
    """Apply an app."""
    if isinstance(app, str | PurePath) or not (isinstance(app, Mapping) or hasattr(app, "queues")):
        cure = 'skep.App.load("orders.skep").spec, or skep.spec.load(text, "orders.skep")'
        raise SkepError(Code.INVALID_REQUEST, f"an app is wanted, not {app!r}: {cure}")
    document = app if isinstance(app, Mapping) else _document(app)
    query = {"dryRun": "true"} if dry_run else None
    path = f"{APPS}/{path_part(str(document.get('name', '')))}"
    return ApiCall(Request("PUT", path, encode(document), query=query), _applied)


def _document(app: App) -> Mapping[str, Any]:
    from skep.spec import to_document  # whoever applies no apps does not load the language

    return to_document(app)


def apps() -> ApiCall[AppsResponse]:
    """All applied apps."""
    return get(APPS, AppsResponse)


def app(name: str) -> ApiCall[AppDetail]:
    """An app with its spec."""
    return get(f"{APPS}/{path_part(name)}", AppDetail)


def remove_app(name: str, dry_run: bool) -> ApiCall[AppRemoved]:
    """Forget an app."""
    return delete(f"{APPS}/{path_part(name)}", AppRemoved, {"dry_run": dry_run})


def refusals(webhook: str) -> ApiCall[RefusalsResponse]:
    """The last requests that a webhook refused."""
    return get(f"/api/v1/webhooks/{path_part(webhook)}/refusals", RefusalsResponse, {})


def entity_types() -> ApiCall[EntityTypesResponse]:
    """The types of which there are entities."""
    return get(ENTITIES, EntityTypesResponse)


def entities(type_: str, after: str | None) -> ApiCall[EntitiesResponse]:
    """A page of entities of a type."""
    return get(f"{ENTITIES}/{path_part(type_)}", EntitiesResponse, {"after": after, "limit": PAGE_ROWS})


def entity(type_: str, id_: str) -> ApiCall[EntityView]:
    """An entity as it is now."""
    return get(f"{ENTITIES}/{path_part(type_)}/{path_part(id_)}", EntityView)


def entity_events(type_: str, id_: str, after: int | None) -> ApiCall[EventsResponse]:
    """A page of an entity's events."""
    path = f"{ENTITIES}/{path_part(type_)}/{path_part(id_)}/events"
    return get(path, EventsResponse, {"after": after, "limit": PAGE_ROWS})


def read_entities(
    entities: Iterable[tuple[str, str]], receipts: Iterable[tuple[str, str]]
) -> ApiCall[EntitiesReadResponse]:
    """Entities and receipts, many at once."""
    wanted = EntitiesReadRequest([EntityName(*one) for one in entities], [ReceiptName(*one) for one in receipts])
    return post(f"{ENTITIES}/read", EntitiesReadResponse, wanted)


def effect(entity: str, id_: str, version: int, events: Events, state: object, cause: str | None) -> EffectItem:
    """An effect, written now: what is sent later is what was given."""
    items = [EventItem(name, Raw(encode(data))) for name, data in events]
    return EffectItem(entity, id_, version, items, Raw(encode(state)), cause)


def receipt(scope: str, key: str, answer: object, window_seconds: float) -> ReceiptItem:
    """A receipt, written now."""
    return ReceiptItem(scope, key, Raw(encode(answer)), window_seconds)


def tenants(after: str | None) -> ApiCall[TenantsResponse]:
    """A page of tenants."""
    return get("/api/v1/resources/tenants", TenantsResponse, {"after": after, "limit": PAGE_ROWS})


def endpoints(after: str | None) -> ApiCall[EndpointsResponse]:
    """A page of endpoints."""
    return get(ENDPOINTS, EndpointsResponse, {"after": after, "limit": PAGE_ROWS})


def report_endpoint(
    url: str,
    report: Report | Literal["delivered", "failed", "gone"],
    reason: str | None,
    threshold: int,
    open_seconds: float,
) -> ApiCall[EndpointView]:
    """Say how a delivery went."""
    told = EndpointReport(url, Report(report), reason, threshold, open_seconds)
    return post(f"{ENDPOINTS}/report", EndpointView, told)


def reset_endpoint(url: str) -> ApiCall[EndpointWasReset]:
    """Deliver to an endpoint again."""
    return post(f"{ENDPOINTS}/reset", EndpointWasReset, EndpointReset(url))
