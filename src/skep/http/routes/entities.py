"""`/api/v1/entities…`: entities, their events, and reads of many at once. Only transactions change them."""

from __future__ import annotations

import msgspec

from skep.engine import Engine
from skep.engine.validate import check_count
from skep.http.recorded import entity_view, event_view, receipt_view
from skep.http.request import parameters
from skep.http.request.call import Answer, Call, json_answer
from skep.http.request.paging import AFTER_NAME, AFTER_SEQ, LIMIT, next_after, page_limit
from skep.http.request.permission import READ_TENANT
from skep.http.routes.route_table import RouteTable
from skep.model.record import EntityKey, ReceiptKey
from skep.wire.entities import (
    EntitiesReadRequest,
    EntitiesReadResponse,
    EntitiesResponse,
    EntityTypesResponse,
    EntityView,
    EventsResponse,
)

_decode_read = msgspec.json.Decoder(EntitiesReadRequest)


ROUTES: RouteTable[Engine] = RouteTable("Entities")


@ROUTES.route(
    "GET", "/api/v1/entities", READ_TENANT, "List the types that have entities",
    answers={200: EntityTypesResponse},
)  # fmt: skip
async def types(engine: Engine, call: Call) -> Answer:
    return json_answer(EntityTypesResponse(await engine.records.entity_types(call.tenant)))


# Before `read`: a type may have that name, and then it is listed all the same.
@ROUTES.route(
    "GET", "/api/v1/entities/{type}", READ_TENANT, "List entities of a type by id", parameters=(AFTER_NAME, LIMIT),
    answers={200: EntitiesResponse},
)  # fmt: skip
async def list_entities(engine: Engine, call: Call) -> Answer:
    limit = page_limit(call.query)
    found = await engine.records.list_entities(
        call.path("type"), call.tenant, after=call.query.get("after", ""), limit=limit
    )
    full = sum(len(one.state) for one in found) >= engine.settings.limits.page_bytes
    after = found[-1].key.id if full else next_after(found, limit, lambda one: one.key.id)
    return json_answer(EntitiesResponse([entity_view(one) for one in found], after))


@ROUTES.route(
    "POST", "/api/v1/entities/read", READ_TENANT, "Read entities and receipts, many at once",
    request=EntitiesReadRequest, answers={200: EntitiesReadResponse},
    description="A missing one is null. Entities that are too large for one answer are refused with 413: read fewer.",
    example={"entities": [{"entity": "Order", "id": "1001"}], "receipts": [{"scope": "command", "key": "m-1"}]},
)  # fmt: skip
async def read(engine: Engine, call: Call) -> Answer:
    request = await call.json(_decode_read)
    tenant = call.tenant
    count = len(request.entities) + len(request.receipts)
    check_count(count, engine.settings.limits.settlements, "the number of entities and receipts")
    keys = [EntityKey(one.entity, one.id, tenant) for one in request.entities]
    names = [ReceiptKey(one.scope, one.key, tenant) for one in request.receipts]
    entities, receipts = await engine.records.read(keys, names)
    return json_answer(
        EntitiesReadResponse(
            [None if one is None else entity_view(one) for one in entities],
            [None if one is None else receipt_view(one) for one in receipts],
        )
    )


@ROUTES.route(
    "GET", "/api/v1/entities/{type}/{id}", READ_TENANT, "Show an entity as it is now", answers={200: EntityView},
)  # fmt: skip
async def show(engine: Engine, call: Call) -> Answer:
    return json_answer(entity_view(await engine.records.entity(_key(call))))


@ROUTES.route(
    "GET", "/api/v1/entities/{type}/{id}/events", READ_TENANT, "List the events of an entity, oldest first",
    parameters=(AFTER_SEQ, LIMIT), answers={200: EventsResponse},
)  # fmt: skip
async def events(engine: Engine, call: Call) -> Answer:
    limit = page_limit(call.query)
    after = parameters.position(call.query, "after") or 0
    found = await engine.records.entity_events(_key(call), after=after, limit=limit)
    full = sum(len(one.data) for one in found) >= engine.settings.limits.page_bytes
    next_ = found[-1].number if full else next_after(found, limit, lambda one: one.number)
    return json_answer(EventsResponse([event_view(one) for one in found], next_))


def _key(call: Call) -> EntityKey:
    return EntityKey(call.path("type"), call.path("id"), call.tenant)
