"""`/api/v1/endpoints…`: addresses of deliveries, for workers and for admins."""

from __future__ import annotations

import msgspec

from skep.engine import Engine
from skep.http.request.call import Answer, Call, json_answer
from skep.http.request.paging import AFTER_NAME, LIMIT, next_after, page_limit
from skep.http.request.permission import ADMIN_TENANT, POP_TENANT, READ_TENANT
from skep.http.routes.route_table import RouteTable
from skep.model.record import DeliveryEndpoint
from skep.spec.endpoint import endpoint_name
from skep.wire.endpoints import EndpointReport, EndpointReset, EndpointsResponse, EndpointView, EndpointWasReset
from skep.wire.times import to_datetime

_decode_report = msgspec.json.Decoder(EndpointReport)
_decode_reset = msgspec.json.Decoder(EndpointReset)


ROUTES: RouteTable[Engine] = RouteTable("Endpoints")


@ROUTES.route(
    "GET", "/api/v1/endpoints", READ_TENANT, "List endpoints with failed deliveries",
    parameters=(AFTER_NAME, LIMIT), answers={200: EndpointsResponse},
)  # fmt: skip
async def list_endpoints(engine: Engine, call: Call) -> Answer:
    limit = page_limit(call.query)
    found = await engine.records.endpoints(call.tenant, after=call.query.get("after", ""), limit=limit)
    after = next_after(found, limit, lambda one: one.url)
    return json_answer(EndpointsResponse([_view(one) for one in found], after))


@ROUTES.route(
    "POST", "/api/v1/endpoints/report", POP_TENANT, "Report the outcome of a delivery; the answer says whether to go on",
    request=EndpointReport, answers={200: EndpointView},
    example={"url": "https://example.com/hook", "report": "failed", "reason": "503"},
)  # fmt: skip
async def report(engine: Engine, call: Call) -> Answer:
    told = await call.json(_decode_report)
    found = await engine.records.report_endpoint(
        endpoint_name(told.url), told.report, call.tenant, threshold=told.threshold, open_seconds=told.open_seconds,
        reason=told.reason,
    )  # fmt: skip
    return json_answer(_view(found))


@ROUTES.route(
    "POST", "/api/v1/endpoints/reset", ADMIN_TENANT, "Deliver to an endpoint again", request=EndpointReset,
    answers={200: EndpointWasReset}, example={"url": "https://example.com/hook"},
)  # fmt: skip
async def reset(engine: Engine, call: Call) -> Answer:
    wanted = await call.json(_decode_reset)
    name = endpoint_name(wanted.url)
    call.note(target=f"endpoint {name}")
    return json_answer(EndpointWasReset(name, await engine.records.reset_endpoint(name, call.tenant)))


def _view(endpoint: DeliveryEndpoint) -> EndpointView:
    return EndpointView(
        endpoint.url, endpoint.failures, None if endpoint.open_until is None else to_datetime(endpoint.open_until),
        None if endpoint.stopped_at is None else to_datetime(endpoint.stopped_at), endpoint.reason,
        to_datetime(endpoint.updated_at),
    )  # fmt: skip
