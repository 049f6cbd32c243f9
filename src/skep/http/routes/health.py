"""`/health`: is the process alive? `/ready`: can it do its work?"""

from __future__ import annotations

from http import HTTPStatus

from msgspec import Struct

from skep.engine import Engine
from skep.errors import SkepError
from skep.http.request.call import Answer, Call, json_answer
from skep.http.request.permission import OPEN
from skep.http.request.route import Route


class Health(Struct):
    """How it stands; ``reason`` says why it is not ready."""

    status: str
    reason: str | None = None
    warnings: list[str] = []
    """What someone should look at, although the server is well."""


def routes(engine: Engine) -> list[Route]:
    """Health and readiness."""

    async def health(call: Call) -> Answer:
        return json_answer(Health("ok", warnings=[] if call.is_guarded else _warnings(engine)))

    async def ready(call: Call) -> Answer:
        try:
            await engine.list_queues(limit=1)
            await engine.check_writable()
        except SkepError as error:
            return json_answer(
                Health("unavailable", error.code if call.is_guarded else str(error)), HTTPStatus.SERVICE_UNAVAILABLE
            )
        return json_answer(Health("ready"))

    return [
        Route(
            method="GET", path="/health", handler=health, answers={200: Health}, tag="Server", access=OPEN, by_link=True,
            summary="Is the process alive? It never fails because the store is away",
        ),
        Route(
            method="GET", path="/ready", handler=ready, answers={200: Health, 503: Health}, tag="Server", access=OPEN, by_link=True,
            summary="Can it do its work? 503 while the store is away or takes no writes",
        ),
    ]  # fmt: skip


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
