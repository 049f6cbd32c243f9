"""The routes of the door: Queen's paths, and what performs each."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from skep.engine import Engine
from skep.engine.answers import Answers
from skep.http.queen import configuring, popping, pushing, settling, transactions
from skep.http.queen.door import QueenDoor, tell
from skep.http.request.call import Answer, Call
from skep.http.request.permission import ADMIN, POP, POP_LIST, POP_OR_PUSH, PUSH, Permission
from skep.http.request.route import Route
from skep.observe.metrics import Meter

Performs = Callable[[QueenDoor, Call], Awaitable[Answer]]


def routes(engine: Engine, meter: Meter, answers: Answers) -> list[Route]:
    """All routes, those of messages first: they are looked for in this order."""
    door = QueenDoor(engine, meter, answers)

    def route(
        method: str, path: str, performs: Performs, access: Permission, summary: str, verb: str = "other"
    ) -> Route:
        async def handle(call: Call) -> Answer:
            return await performs(door, call)

        return Route(
            method=method, path=path, handler=handle, summary=summary, tag="Queen", access=access, checks_query=True,
            verb=verb, tell=tell, request=None if method in ("GET", "DELETE") else Any, optional=True, answers={200: Any},
        )  # fmt: skip

    pop = popping.pop
    return [
        route("POST", "/api/v1/push", pushing.push, PUSH, "Push messages", "push"),
        route("GET", "/api/v1/pop/queue/{queue}", pop, POP, "Pop from a queue", "pop"),
        route("GET", "/api/v1/pop/queue/{queue}/partition/{partition}", pop, POP, "Pop from a partition", "pop"),
        route("GET", "/api/v1/pop", popping.pop_matching, POP_LIST, "Pop from a namespace or a task", "pop"),
        route("POST", "/api/v1/ack", settling.ack, POP, "Acknowledge a message", "ack"),
        route("POST", "/api/v1/ack/batch", settling.ack_batch, POP, "Acknowledge messages", "ack"),
        route(
            "POST", "/api/v1/transaction", transactions.transaction, POP_OR_PUSH, "Push and acknowledge", "transaction"
        ),
        route("POST", "/api/v1/lease/{lease}/extend", settling.extend, POP, "Keep a lease", "extend"),
        route("POST", "/api/v1/configure", configuring.configure, ADMIN, "Make or change a queue"),
    ]
