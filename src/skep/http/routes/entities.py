"""`/api/v1/entities…`: what commands made, its history, and reading much of it at once."""

from __future__ import annotations

import msgspec

from skep.engine import Engine
from skep.engine.validate import check_count
from skep.http.recorded import entity_view, event_view, receipt_view
from skep.http.request import parameters
from skep.http.request.call import Answer, Call, json_answer
from skep.http.request.paging import AFTER_NAME, LIMIT, next_after, page_limit
from skep.http.request.permission import READ_TENANT
from skep.http.request.route import Parameter, Route
from skep.model.record import EntityKey, ReceiptKey
from skep.wire.entities import (
    EntitiesReadRequest,
    EntitiesReadResponse,
    EntitiesResponse,
    EntityTypesResponse,
    EntityView,
    EventsResponse,
)

TAG = "Entities"
AFTER_NUMBER = Parameter("after", int, "where the page starts: the ``after`` of the page before")

_decode_read = msgspec.json.Decoder(EntitiesReadRequest)


def routes(engine: Engine) -> list[Route]:
    """Looking at entities. Only transactions change them."""

    async def types(call: Call) -> Answer:
        return json_answer(EntityTypesResponse(await engine.records.entity_types(call.tenant)))

    async def list_entities(call: Call) -> Answer:
        limit = page_limit(call.query)
        found = await engine.records.list_entities(
            call.path("type"), call.tenant, after=call.query.get("after", ""), limit=limit
        )
        full = sum(len(one.state) for one in found) >= engine.settings.limits.page_bytes
        after = found[-1].key.id if full else next_after(found, limit, lambda one: one.key.id)
        return json_answer(EntitiesResponse([entity_view(one) for one in found], after))

    async def show(call: Call) -> Answer:
        return json_answer(entity_view(await engine.records.entity(_key(call))))

    async def events(call: Call) -> Answer:
        limit = page_limit(call.query)
        after = parameters.position(call.query, "after") or 0
        found = await engine.records.entity_events(_key(call), after=after, limit=limit)
        full = sum(len(one.data) for one in found) >= engine.settings.limits.page_bytes
        next_ = found[-1].number if full else next_after(found, limit, lambda one: one.number)
        return json_answer(EventsResponse([event_view(one) for one in found], next_))

    async def read(call: Call) -> Answer:
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

    # Types before `read`: a type may have that name, and then it is listed all the same.
    return [
        Route(
            method="GET", path="/api/v1/entities", access=READ_TENANT, handler=types, tag=TAG, answers={200: EntityTypesResponse},
            summary="List the types of which there are entities",
        ),
        Route(
            method="GET", path="/api/v1/entities/{type}", access=READ_TENANT, handler=list_entities, tag=TAG,
            parameters=(AFTER_NAME, LIMIT), answers={200: EntitiesResponse}, summary="List entities of a type by id",
        ),
        Route(
            method="POST", path="/api/v1/entities/read", access=READ_TENANT, handler=read, tag=TAG, request=EntitiesReadRequest,
            answers={200: EntitiesReadResponse}, summary="Read entities and receipts, many at once",
            description="What is not there is null. Entities that are too much for one answer are refused with 413: read fewer.",
            example={"entities": [{"entity": "Order", "id": "1001"}], "receipts": [{"scope": "command", "key": "m-1"}]},
        ),
        Route(
            method="GET", path="/api/v1/entities/{type}/{id}", access=READ_TENANT, handler=show, tag=TAG, answers={200: EntityView},
            summary="Show an entity as it is now",
        ),
        Route(
            method="GET", path="/api/v1/entities/{type}/{id}/events", access=READ_TENANT, handler=events, tag=TAG,
            parameters=(AFTER_NUMBER, LIMIT), answers={200: EventsResponse},
            summary="List the events of an entity, the first one first",
        ),
    ]  # fmt: skip


def _key(call: Call) -> EntityKey:
    return EntityKey(call.path("type"), call.path("id"), call.tenant)
