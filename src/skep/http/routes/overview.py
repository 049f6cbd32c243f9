"""`/api/v1/resources/…`: totals, namespaces and tasks of a tenant."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from skep.http.concerns import failed_calls
from skep.http.request.call import Answer, Call, json_answer
from skep.http.request.paging import AFTER_NAME, LIMIT, next_after, page_limit
from skep.http.request.permission import KNOWN, READ_LIST
from skep.http.routes.route_table import RouteTable, Served
from skep.http.tenant_scan import ALL_QUEUES, all_listed, known_tenants, survey, totals
from skep.wire.queues import Labelled, NamespacesResponse, Overview, TasksResponse, TenantsResponse

ROUTES: RouteTable[Served] = RouteTable("Queues")


@ROUTES.route(
    "GET", "/api/v1/resources/namespaces", READ_LIST, "List namespaces, and how many queues each has",
    answers={200: NamespacesResponse},
)  # fmt: skip
async def namespaces(served: Served, call: Call) -> Answer:
    queues, complete = await all_listed(served.engine, call.tenant, ALL_QUEUES, call.visible)
    return json_answer(NamespacesResponse(_labels(queue.settings.namespace for queue in queues), complete))


@ROUTES.route(
    "GET", "/api/v1/resources/tasks", READ_LIST, "List tasks, and how many queues each has",
    answers={200: TasksResponse},
)  # fmt: skip
async def tasks(served: Served, call: Call) -> Answer:
    queues, complete = await all_listed(served.engine, call.tenant, ALL_QUEUES, call.visible)
    return json_answer(TasksResponse(_labels(queue.settings.task for queue in queues), complete))


@ROUTES.route(
    "GET", "/api/v1/resources/tenants", KNOWN, "List the tenants that have queues", parameters=(AFTER_NAME, LIMIT),
    answers={200: TenantsResponse},
)  # fmt: skip
async def tenants(served: Served, call: Call) -> Answer:
    limit, after = page_limit(call.query), call.query.get("after", "")
    found = await known_tenants(served.engine, call, after, limit)
    return json_answer(TenantsResponse(found, next_after(found, limit, lambda name: name)))


@ROUTES.route(
    "GET", "/api/v1/resources/overview", READ_LIST,
    "Add up all queues: depth, in flight, dead letters, rates, oldest message", answers={200: Overview},
)  # fmt: skip
async def overview(served: Served, call: Call) -> Answer:
    seen = await survey(served.engine, call.tenant, sees=call.visible)
    return json_answer(totals(seen, failed_calls(served.total(), call, served.engine.now())))


def _labels(names: Iterable[str | None]) -> list[Labelled]:
    found = Counter(name for name in names if name is not None)
    return [Labelled(name, found[name]) for name in sorted(found)]
