"""`/api/v1/endpoints…`: addresses that messages are delivered to, for those who deliver and those who look after them."""

from __future__ import annotations

import msgspec

from skep.engine import Engine
from skep.http.request.call import Answer, Call, json_answer
from skep.http.request.paging import AFTER_NAME, LIMIT, next_after, page_limit
from skep.http.request.permission import ADMIN_TENANT, POP_TENANT, READ_TENANT
from skep.http.request.route import Route
from skep.model.record import Endpoint
from skep.spec.endpoint import endpoint_name
from skep.wire.endpoints import EndpointReport, EndpointReset, EndpointsResponse, EndpointView, EndpointWasReset
from skep.wire.times import to_datetime

TAG = "Endpoints"

_decode_report = msgspec.json.Decoder(EndpointReport)
_decode_reset = msgspec.json.Decoder(EndpointReset)


def routes(engine: Engine) -> list[Route]:
    """Endpoints and their circuit breakers."""

    async def list_endpoints(call: Call) -> Answer:
        limit = page_limit(call.query)
        found = await engine.records.endpoints(call.tenant, after=call.query.get("after", ""), limit=limit)
        after = next_after(found, limit, lambda one: one.url)
        return json_answer(EndpointsResponse([_view(one) for one in found], after))

    async def report(call: Call) -> Answer:
        told = await call.json(_decode_report)
        found = await engine.records.report_endpoint(
            endpoint_name(told.url), told.report, call.tenant, threshold=told.threshold, open_seconds=told.open_seconds,
            reason=told.reason,
        )  # fmt: skip
        return json_answer(_view(found))

    async def reset(call: Call) -> Answer:
        wanted = await call.json(_decode_reset)
        name = endpoint_name(wanted.url)
        call.note(target=f"endpoint {name}")
        return json_answer(EndpointWasReset(name, await engine.records.reset_endpoint(name, call.tenant)))

    return [
        Route(
            method="GET", path="/api/v1/endpoints", access=READ_TENANT, handler=list_endpoints, tag=TAG, parameters=(AFTER_NAME, LIMIT),
            answers={200: EndpointsResponse}, summary="List endpoints that a delivery failed to",
        ),
        Route(
            method="POST", path="/api/v1/endpoints/report", access=POP_TENANT, handler=report, tag=TAG, request=EndpointReport,
            answers={200: EndpointView}, summary="Say how a delivery went, and hear whether to go on",
            example={"url": "https://example.com/hook", "report": "failed", "reason": "503"},
        ),
        Route(
            method="POST", path="/api/v1/endpoints/reset", access=ADMIN_TENANT, handler=reset, tag=TAG, request=EndpointReset,
            answers={200: EndpointWasReset}, summary="Deliver to an endpoint again",
            example={"url": "https://example.com/hook"},
        ),
    ]  # fmt: skip


def _view(endpoint: Endpoint) -> EndpointView:
    return EndpointView(
        endpoint.url, endpoint.failures, None if endpoint.open_until is None else to_datetime(endpoint.open_until),
        None if endpoint.stopped_at is None else to_datetime(endpoint.stopped_at), endpoint.reason,
        to_datetime(endpoint.updated_at),
    )  # fmt: skip
