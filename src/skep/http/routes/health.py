"""`/health`: is the process alive? `/ready`: can it do its work?"""

from __future__ import annotations

from http import HTTPStatus

from msgspec import Struct

from skep.engine import Engine
from skep.errors import SkepError
from skep.http.request.call import Answer, Call, json_answer
from skep.http.request.permission import OPEN
from skep.http.routes.route_table import RouteTable


class Health(Struct):
    """The state of the server; ``reason`` says why it is not ready."""

    status: str
    reason: str | None = None
    warnings: list[str] = []
    """Warnings, although the server is well."""


ROUTES: RouteTable[Engine] = RouteTable("Server")


@ROUTES.route(
    "GET", "/health", OPEN, "Is the process alive? It never fails because the store is away", answers={200: Health},
    by_link=True,
)  # fmt: skip
async def health(engine: Engine, call: Call) -> Answer:
    return json_answer(Health("ok", warnings=[] if call.is_guarded else _warnings(engine)))


@ROUTES.route(
    "GET", "/ready", OPEN, "Can it do its work? 503 while the store is away or takes no writes",
    answers={200: Health, 503: Health}, by_link=True,
)  # fmt: skip
async def ready(engine: Engine, call: Call) -> Answer:
    try:
        await engine.list_queues(limit=1)
        await engine.check_writable()
    except SkepError as error:
        return json_answer(
            Health("unavailable", error.code if call.is_guarded else str(error)), HTTPStatus.SERVICE_UNAVAILABLE
        )
    return json_answer(Health("ready"))


def _warnings(engine: Engine) -> list[str]:
    stuck, blocked = engine.operations.stuck, engine.operations.blocked
    told = []
    if stuck:
        told.append(f"queued operations that are stuck, waiting for more than twice their timeout: {stuck}")
    if blocked:
        told.append(
            f"queued operations that are blocked and tried again: {blocked}; see skep ops list --status blocked"
        )
    return told
