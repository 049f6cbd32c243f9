"""The routes of the door: `POST /`, and queue URLs."""

from __future__ import annotations

import uuid
from typing import Any
from urllib.parse import quote

from msgspec import Struct

from skep.access.gate import Gate
from skep.access.principal import Principal
from skep.engine import Engine
from skep.engine.answers import Answers
from skep.errors import Code, SkepError
from skep.http.auditing import audited
from skep.http.request.call import FORM, Answer, Call
from skep.http.request.permission import ADMIN, SIGNED
from skep.http.request.route import Media, Route
from skep.http.request.statuses import seen_from_outside
from skep.http.sqs import json_protocol, query_protocol
from skep.http.sqs.actions import SqsAction
from skep.http.sqs.attempts import Attempts
from skep.http.sqs.door import SqsDoor, Undoable
from skep.http.sqs.faults import fault_of
from skep.http.sqs.names import PATH
from skep.http.sqs.queues import SqsQueues
from skep.http.sqs.signing import admit, examine
from skep.model.key import Verb
from skep.observe.metrics import Meter

ROOT = "/"
QUEUE = PATH + "{account}/{queue}"


def tell(error: SkepError, call: Call) -> Answer:
    """The answer with an error, in the protocol that the caller speaks."""
    shown = seen_from_outside(error)
    fault = fault_of(shown)
    request_id = str(uuid.uuid4())
    if call.header(json_protocol.TARGET) is not None:
        return json_protocol.refusal(shown, fault, request_id)
    return query_protocol.refusal(shown, fault, request_id)


def routes(
    engine: Engine, meter: Meter, answers: Answers, gate: Gate | None, audit_seconds: float, path_prefix: str
) -> list[Route]:
    """The door's routes. Without a ``gate`` nobody's signature is looked at."""
    door = SqsDoor(engine, meter, answers, SqsQueues(engine), Attempts(engine), set(), path_prefix)

    async def handle(call: Call) -> Answer:
        signed = None if gate is None else await examine(gate, call, engine.now())
        body = await call.body()
        principal = None if gate is None or signed is None else await admit(gate, call, signed, body, path_prefix)
        target = call.header(json_protocol.TARGET)
        if target is not None:
            action = json_protocol.action_of(target)
            return await perform(call, principal, action, json_protocol.read(action, body))
        given = query_protocol.parameters(call.scope["query_string"] if call.scope["method"] == "GET" else body)
        action = query_protocol.action_of(given)
        if "queue" in call.scope.get("path_params", {}):
            given.setdefault(
                "QueueUrl", f"{PATH}{quote(call.path('account'), safe='')}/{quote(call.path('queue'), safe='')}"
            )
        return await perform(call, principal, action, query_protocol.read(action, given))

    async def perform(call: Call, principal: Principal | None, action: SqsAction, request: Struct) -> Answer:
        async def act(call: Call) -> Answer:
            done = await action.perform(door, call, request)
            result = done.result if isinstance(done, Undoable) else done
            request_id = str(uuid.uuid4())
            told = (
                json_protocol.answer(result, request_id)
                if call.header(json_protocol.TARGET) is not None
                else query_protocol.answer(action, result, request_id)
            )
            if isinstance(done, Undoable):
                told.undelivered = done.undo
            return told

        call.enter(principal, action.verb)
        if action.is_noted:
            # Before it is noted: who administers nothing fills no audit log.
            if principal is not None and not any(Verb.ADMIN in grant.verbs for grant in principal.grants):
                raise SkepError(Code.FORBIDDEN, f"{action.name} needs {ADMIN}")
            return await audited(engine.access, f"SQS {action.name}", ADMIN, audit_seconds, act)(call)
        return await act(call)

    def route(method: str, path: str, summary: str) -> Route:
        return Route(
            method=method, path=path, handler=handle, summary=summary, tag="Amazon SQS", access=SIGNED, checks_query=True,
            verb="pop" if method == "GET" else "other", tell=tell,
            description="docs/sqs.md says how SDKs of AWS reach it. The action is in the header X-Amz-Target and the request is JSON, or both are a"
            " form, and the answer is XML.",
            request=None if method == "GET" else (Media("application/x-amz-json-1.0", Any), Media(FORM.decode())),
            answers={200: (Media("application/x-amz-json-1.0", Any), Media("text/xml"))},
        )  # fmt: skip

    return [
        route("POST", ROOT, "Perform an action of Amazon SQS"),
        route("POST", QUEUE, "Perform an action of Amazon SQS on a queue"),
        route("GET", QUEUE, "Perform an action of Amazon SQS on a queue, by a URL"),
    ]
