"""`/api/v1/resources/…`: what a tenant has, as a whole."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from skep.engine import Engine
from skep.http.concerns import failed_calls
from skep.http.request.call import Answer, Call, json_answer
from skep.http.request.paging import AFTER_NAME, LIMIT, next_after, page_limit
from skep.http.request.permission import KNOWN, READ_LIST
from skep.http.request.route import Route
from skep.http.tenant_scan import ALL_QUEUES, all_listed, known_tenants, survey, totals
from skep.observe.metrics import Meter
from skep.wire.queues import Labelled, NamespacesResponse, Overview, TasksResponse, TenantsResponse

TAG = "Queues"


def routes(engine: Engine, total: Callable[[], Meter]) -> list[Route]:
    """Namespaces, tasks, totals."""

    async def namespaces(call: Call) -> Answer:
        queues, complete = await all_listed(engine, call.tenant, ALL_QUEUES, call.visible)
        return json_answer(NamespacesResponse(_labels(queue.settings.namespace for queue in queues), complete))

    async def tasks(call: Call) -> Answer:
        queues, complete = await all_listed(engine, call.tenant, ALL_QUEUES, call.visible)
        return json_answer(TasksResponse(_labels(queue.settings.task for queue in queues), complete))

    async def tenants(call: Call) -> Answer:
        limit, after = page_limit(call.query), call.query.get("after", "")
        found = await known_tenants(engine, call, after, limit)
        return json_answer(TenantsResponse(found, next_after(found, limit, lambda name: name)))

    async def overview(call: Call) -> Answer:
        seen = await survey(engine, call.tenant, sees=call.visible)
        return json_answer(totals(seen, failed_calls(total(), call, engine.now())))

    return [
        Route(
            method="GET", path="/api/v1/resources/namespaces", access=READ_LIST, handler=namespaces, tag=TAG,
            answers={200: NamespacesResponse}, summary="List namespaces, and how many queues each has",
        ),
        Route(
            method="GET", path="/api/v1/resources/tasks", access=READ_LIST, handler=tasks, tag=TAG, answers={200: TasksResponse},
            summary="List tasks, and how many queues each has",
        ),
        Route(
            method="GET", path="/api/v1/resources/tenants", access=KNOWN, handler=tenants, tag=TAG, parameters=(AFTER_NAME, LIMIT),
            answers={200: TenantsResponse}, summary="List the tenants that have queues",
        ),
        Route(
            method="GET", path="/api/v1/resources/overview", access=READ_LIST, handler=overview, tag=TAG, answers={200: Overview},
            summary="Add up all queues: depth, in flight, dead letters, rates, oldest message",
        ),
    ]  # fmt: skip


def _labels(names: Iterable[str | None]) -> list[Labelled]:
    found = Counter(name for name in names if name is not None)
    return [Labelled(name, found[name]) for name in sorted(found)]
