"""The routes of the door: Queen's paths, and what performs each."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple

import msgspec

from skep.http.queen import (
    configuring,
    dead_letters,
    grouping,
    messages,
    popping,
    pushing,
    resources,
    settling,
    system,
    tracing,
    transactions,
)
from skep.http.queen.door import QueenDoor, tell
from skep.http.request.call import Answer, Call
from skep.http.request.permission import (
    ADMIN,
    OPEN,
    POP,
    POP_LIST,
    POP_OR_PUSH,
    PUSH,
    READ,
    READ_LIST,
    READ_SERVER,
    READ_TENANT,
    Permission,
    Reach,
)
from skep.http.request.route import Route
from skep.model.key import Verb

ADMIN_LIST = Permission(Reach.LIST, (Verb.ADMIN,))
MESSAGE = "/api/v1/messages/{partition}/{transaction}"
GROUPS = "/api/v1/consumer-groups"
GROUP = GROUPS + "/{group}"
MAINTENANCE = "/api/v1/system/maintenance"


class QueenCall(NamedTuple):
    """One of Queen's calls."""

    method: str
    path: str
    performs: Callable[[QueenDoor, Call], Awaitable[Answer]]
    access: Permission
    summary: str
    verb: str = "other"


CALLS = (
    # messages first: calls are looked for in this order
    QueenCall("POST", "/api/v1/push", pushing.push, PUSH, "Push messages", "push"),
    QueenCall("GET", "/api/v1/pop/queue/{queue}", popping.pop, POP, "Pop from a queue", "pop"),
    QueenCall("POST", "/api/v1/ack", settling.ack, POP, "Acknowledge a message", "ack"),
    QueenCall("POST", "/api/v1/ack/batch", settling.ack_batch, POP, "Acknowledge messages", "ack"),
    QueenCall(
        "GET", "/api/v1/pop/queue/{queue}/partition/{partition}", popping.pop, POP, "Pop from a partition", "pop"
    ),
    QueenCall("GET", "/api/v1/pop", popping.pop_matching, POP_LIST, "Pop from a namespace or a task", "pop"),
    QueenCall(
        "POST",
        "/api/v1/transaction",
        transactions.transaction,
        POP_OR_PUSH,
        "Push and acknowledge at once",
        "transaction",
    ),
    QueenCall("POST", "/api/v1/lease/{lease}/extend", settling.extend, POP, "Keep a lease for longer", "extend"),
    QueenCall("POST", "/api/v1/traces", tracing.tell, POP, "Tell of a message"),
    QueenCall("POST", "/api/v1/configure", configuring.configure, ADMIN, "Make or change a queue"),
    # looking around
    QueenCall("GET", "/api/v1/dlq", dead_letters.list_letters, READ, "List dead letters"),
    QueenCall("GET", "/api/v1/messages", messages.list_messages, READ, "List messages"),
    QueenCall("GET", MESSAGE, messages.show, READ, "Show a message"),
    QueenCall("DELETE", MESSAGE, messages.delete, ADMIN, "Delete a message"),
    QueenCall("POST", MESSAGE + "/retry", dead_letters.retry, ADMIN, "Send a dead letter back"),
    QueenCall("POST", MESSAGE + "/dlq", dead_letters.bury, ADMIN, "Give a message up"),
    QueenCall("GET", "/api/v1/traces/names", tracing.names, READ_TENANT, "List the names of events"),
    QueenCall("GET", "/api/v1/traces/by-name/{name}", tracing.by_name, READ_LIST, "List events with a name"),
    QueenCall(
        "GET", "/api/v1/traces/{partition}/{transaction}", tracing.of_message, READ, "List the events of a message"
    ),
    QueenCall("GET", "/api/v1/resources/queues", resources.list_queues, READ_LIST, "List queues"),
    QueenCall("GET", "/api/v1/resources/queues/{queue}", resources.show_queue, READ, "Show a queue"),
    QueenCall("DELETE", "/api/v1/resources/queues/{queue}", resources.delete_queue, ADMIN, "Delete a queue"),
    QueenCall("DELETE", "/api/v1/queues/{queue}/clear", resources.clear_queue, ADMIN, "Remove all messages of a queue"),
    QueenCall("GET", "/api/v1/resources/partitions", resources.list_partitions, READ, "List partitions with work"),
    # consumer groups
    QueenCall("GET", GROUPS, grouping.list_groups, READ_LIST, "List groups"),
    QueenCall("GET", GROUPS + "/lagging", grouping.lagging, READ_LIST, "List groups that are behind"),
    QueenCall("GET", GROUP, grouping.show, READ_LIST, "Show a group"),
    QueenCall("DELETE", GROUP, grouping.delete, ADMIN_LIST, "Delete a group"),
    QueenCall("POST", GROUP + "/subscription", grouping.subscription, ADMIN_LIST, "Move a group to a time"),
    QueenCall("DELETE", GROUP + "/queues/{queue}", grouping.delete_in_queue, ADMIN, "Delete a group of a queue"),
    QueenCall("POST", GROUP + "/queues/{queue}/seek", grouping.seek, ADMIN, "Move a group of a queue"),
    QueenCall("POST", "/api/v1/stats/refresh", grouping.refresh, READ_LIST, "Count anew"),
    # the server
    QueenCall("GET", "/health", system.health, OPEN, "Can the server do its work?"),
    QueenCall("GET", MAINTENANCE, system.maintenance, READ_SERVER, "See the maintenance mode"),
    QueenCall("GET", MAINTENANCE + "/pop", system.maintenance, READ_SERVER, "See the maintenance mode of pops"),
    QueenCall("POST", MAINTENANCE, system.set_maintenance, READ_SERVER, "Switch the maintenance mode"),
    QueenCall("POST", MAINTENANCE + "/pop", system.set_maintenance, READ_SERVER, "Switch the maintenance mode of pops"),
    QueenCall("GET", "/api/v1/status/analytics", system.analytics, READ_TENANT, "See counters by the minute"),
    QueenCall("GET", "/api/v1/analytics/system-metrics", system.not_here, READ_SERVER, "Figures of Queen's server"),
    QueenCall("GET", "/api/v1/analytics/worker-metrics", system.not_here, READ_SERVER, "Figures of Queen's workers"),
    QueenCall("GET", "/api/v1/analytics/postgres-stats", system.not_here, READ_SERVER, "Figures of Queen's database"),
)

AS_OURS = (
    "/api/v1/resources/overview", "/api/v1/resources/namespaces", "/api/v1/resources/tasks", "/api/v1/status",
    "/api/v1/status/queues", "/api/v1/status/queues/{queue}", "/metrics",
)  # fmt: skip
"""Paths whose answers clients hand through to people: they are those of our own API."""


def routes(door: QueenDoor, ours: Sequence[Route]) -> list[Route]:
    """All routes; ``ours`` are those of our own API."""
    as_ours = {route.path: route for route in ours if route.method == "GET" and route.path in AS_OURS}
    return [
        *(_route(door, call) for call in CALLS),
        *(msgspec.structs.replace(as_ours[path], tell=tell, checks_query=True) for path in AS_OURS),
    ]


def _route(door: QueenDoor, queen: QueenCall) -> Route:
    async def handle(call: Call) -> Answer:
        return await queen.performs(door, call)

    return Route(
        method=queen.method, path=queen.path, handler=handle, summary=queen.summary, tag="Queen", access=queen.access,
        checks_query=True, verb=queen.verb, tell=tell, by_link=queen.path == "/health", answers={200: Any},
    )  # fmt: skip
