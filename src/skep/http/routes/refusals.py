"""`/api/v1/webhooks/{webhook}/refusals`: the last requests that a webhook refused.

A caller who may read the webhook's queue sees the refusals of the tenant. Refusals without a verified tenant need the right to read all.
"""

from __future__ import annotations

from collections.abc import Callable

from skep.errors import Code, SkepError
from skep.http.request.call import Answer, Call, json_answer
from skep.http.request.permission import READ_LIST
from skep.http.request.route import Parameter
from skep.http.routes.route_table import RouteTable, Served
from skep.model import QueueKey
from skep.model.key import SERVER
from skep.model.refusal import Refusal
from skep.wire.refusals import RefusalsResponse, RefusalView
from skep.wire.times import to_datetime

WEBHOOK = Parameter("webhook", str, "the webhook's name, as the spec has it")


ROUTES: RouteTable[Served] = RouteTable("Webhooks")


@ROUTES.route(
    "GET", "/api/v1/webhooks/{webhook}/refusals", READ_LIST, "See the last requests that a webhook refused",
    parameters=(WEBHOOK,), answers={200: RefusalsResponse},
    description="The newest 100 of each webhook are kept. A caller who may read everything also sees those without a verified tenant.",
)  # fmt: skip
async def refusals(served: Served, call: Call) -> Answer:
    webhook = call.path("webhook")
    found = await served.engine.refusals.list(webhook, visible=visible_refusal(call, call.tenant))
    if not found and served.catalogue.webhook(webhook) is None:  # one that was removed may have some
        raise SkepError(Code.WEBHOOK_NOT_FOUND, f"there is no webhook {webhook[:100]!r}")
    return json_answer(RefusalsResponse([refusal_view(one) for one in found]))


def visible_refusal(call: Call, tenant: str) -> Callable[[Refusal], bool]:
    """Whether the caller may see a refusal: by the webhook's queue, or for a webhook without one by all queues of the tenant."""
    sees_queue, sees_all, sees_server = call.visible, call.sees_all, call.sees_server

    def visible(one: Refusal) -> bool:
        if one.tenant == SERVER:
            return sees_server
        if one.tenant != tenant:
            return False
        return sees_queue(QueueKey(one.queue, tenant)) if one.queue else sees_all

    return visible


def refusal_view(one: Refusal) -> RefusalView:
    """A refusal as a struct of the wire."""
    return RefusalView(
        one.webhook, to_datetime(one.at), one.code, one.status, one.message, one.remote, one.excerpt,
        None if one.tenant == SERVER else one.tenant, one.queue or None,
    )  # fmt: skip
