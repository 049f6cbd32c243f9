"""`POST /hook/…`: webhooks. A request that its sender should repeat gets 503, which all senders understand, and never 429."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from skep.errors import Code, SkepError
from skep.http.request.call import Answer, Call
from skep.http.request.permission import OPEN
from skep.http.request.route import Media, Route
from skep.http.request.statuses import error_answer, status_of
from skep.webhooks.intake import NO_QUERY, Intake
from skep.webhooks.request import HookRequest
from skep.wire.webhooks import HookResponse, QuarantineResponse

HOOK = "/hook/"
_DESCRIPTION = (
    "The body is JSON, whatever its content type, or a form whose field payload is JSON. It is parsed once its signature is "
    "right. 202 when the message is stored; "
    "a webhook without a queue runs its command, and 200 is the command's answer. A repeat gets the answer of the first. "
    "401 for a signature that is missing or wrong, 400 for one that cannot be any, 503 when the queue is full."
)


def hook_status(code: Code) -> int:
    """The status of an error for a sender."""
    return _for_sender(status_of(code))


def _for_sender(status: int) -> int:
    """The status as senders understand it: 503 when they should repeat the request."""
    return HTTPStatus.SERVICE_UNAVAILABLE if status == HTTPStatus.TOO_MANY_REQUESTS else status


def routes(intake: Intake) -> list[Route]:
    """Webhooks."""

    async def receive(call: Call) -> Answer:
        name = call.path("webhook")
        webhook = intake.find(name)  # first: the body of a request to an unknown webhook is not read
        client = call.scope["client"]
        tenant = call.path("tenant") if "tenant" in call.scope["path_params"] else None
        source_ip = client[0] if client is not None else ""
        try:
            if call.scope["query_string"]:
                raise SkepError(Code.INVALID_REQUEST, NO_QUERY)
            body = await call.body()
        except SkepError as error:
            intake.refused(webhook, HookRequest(name, tenant, call.scope["headers"], b"", source_ip), error)
            raise
        request = HookRequest(name, tenant, call.scope["headers"], body, source_ip)
        try:
            answer = await intake.receive(webhook, request)
        except SkepError as error:
            told = error_answer(error)
            told.status = _for_sender(told.status)
            return told
        return Answer(answer.status, answer.body)

    def route(path: str, summary: str) -> Route:
        return Route(
            method="POST", path=path, access=OPEN, handler=receive, summary=summary, description=_DESCRIPTION, tag="Webhooks",
            verb="hook", checks_query=True, request=Media("*/*", Any), answers={202: (HookResponse, QuarantineResponse), 200: Media("application/json", Any)},
        )  # fmt: skip

    return [
        route(HOOK + "{webhook}", "Receive a message from outside"),
        route(HOOK + "{webhook}/{tenant}", "Receive a message from outside for a tenant"),
    ]
