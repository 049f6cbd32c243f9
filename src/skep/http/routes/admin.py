"""`/admin`: a few figures and actions for an operator's first tools, with names of their own."""

from __future__ import annotations

import msgspec
from msgspec import Raw

from skep.clock import MICROS_PER_SECOND
from skep.http import dead_letter_requests
from skep.http.request import parameters
from skep.http.request.call import Answer, Call, json_answer
from skep.http.request.paging import AFTER_NAME, AFTER_SEQ, LIMIT, page_limit
from skep.http.request.permission import ADMIN, READ, READ_LIST
from skep.http.request.route import Parameter
from skep.http.routes.route_table import RouteTable, Served
from skep.http.tenant_scan import Scanned, asked_page, figures
from skep.http.views import shown_payload, wanted_id
from skep.ids import id_text
from skep.model import DeadLetter, DeadLetterFilter, QueueKey, Seq
from skep.wire.admin import (
    AdminDeadLetter,
    AdminDeadLetters,
    AdminDone,
    AdminPreview,
    AdminQueue,
    AdminQueues,
    AdminReplayed,
)

PREVIEW_BYTES = 1_024
TENANT = Parameter("tenant_id", str, "whose queues; the tenant of the header by default")
NAME = Parameter("name", str, "the queue whose dead letters are meant, or the dead-letter queue itself")
ID = Parameter("id", str, "the dead letter's id")


ROUTES: RouteTable[Served] = RouteTable("Admin")


@ROUTES.route(
    "GET", "/admin/queues", READ_LIST, "See the vital signs of queues", tenant_in=TENANT.name,
    parameters=(TENANT, AFTER_NAME, LIMIT), answers={200: AdminQueues},
)  # fmt: skip
async def queues(served: Served, call: Call) -> Answer:
    found, after = await asked_page(served.engine, call)
    return json_answer(AdminQueues([_queue(one) for one in await figures(served.engine, found)], after))


@ROUTES.route(
    "GET", "/admin/queues/{name}/dlq", READ, "List the dead letters of a queue", tenant_in=TENANT.name,
    parameters=(NAME, TENANT, AFTER_SEQ, LIMIT), answers={200: AdminDeadLetters},
)  # fmt: skip
async def letters(served: Served, call: Call) -> Answer:
    limit = page_limit(call.query)
    after = parameters.position(call.query, "after")
    wanted = DeadLetterFilter(queue=_key(call))
    await call.hold(served.answers, dead_letter_requests.page_bytes(served.engine))
    found, follows = await dead_letter_requests.found(
        served.engine, wanted, None if after is None else Seq(after), limit, call
    )
    return json_answer(AdminDeadLetters([_letter(letter) for letter in found], follows))


@ROUTES.route(
    "POST", "/admin/queues/{name}/dlq/{id}/replay", ADMIN, "Send a dead letter back to its queue",
    tenant_in=TENANT.name, parameters=(NAME, ID, TENANT), answers={200: AdminReplayed},
)  # fmt: skip
async def replay(served: Served, call: Call) -> Answer:
    wanted = await dead_letter_requests.meant(served.engine, _named(call), call)
    done = None if wanted is None else await served.engine.dead_letters.replay(wanted)
    if done is None or not done.replayed:
        raise dead_letter_requests.missing(_key(call), call.path("id"))
    call.note(count=done.count)
    return json_answer(AdminReplayed(True, id_text(done.replayed[0].id)))


@ROUTES.route(
    "DELETE", "/admin/queues/{name}/dlq/{id}", ADMIN, "Delete a dead letter for good", tenant_in=TENANT.name,
    parameters=(NAME, ID, TENANT), answers={200: AdminDone},
)  # fmt: skip
async def delete(served: Served, call: Call) -> Answer:
    wanted = await dead_letter_requests.meant(served.engine, _named(call), call)
    if wanted is None or not await served.engine.dead_letters.purge(wanted):
        raise dead_letter_requests.missing(_key(call), call.path("id"))
    call.note(count=1)
    return json_answer(AdminDone(True))


def _key(call: Call) -> QueueKey:
    return QueueKey(call.path("name"), call.tenant)


def _named(call: Call) -> DeadLetterFilter:
    return DeadLetterFilter(queue=_key(call), ids=[wanted_id(call.path("id"))])


def _queue(one: Scanned) -> AdminQueue:
    stats = one.stats
    return AdminQueue(
        name=one.queue.key.name, depth=stats.depth, in_flight=stats.in_flight,
        oldest_message_age_seconds=stats.oldest_age_seconds, messages_per_minute=stats.rates.pushed * 60,
    )  # fmt: skip


def _letter(letter: DeadLetter) -> AdminDeadLetter:
    is_whole = len(letter.payload) <= PREVIEW_BYTES
    shown = shown_payload(letter.payload[:PREVIEW_BYTES], letter.content_type, is_whole=is_whole)
    payload = shown.payload if shown.preview is None else Raw(msgspec.json.encode(shown.preview))
    return AdminDeadLetter(
        id=id_text(letter.id), failed_at=letter.failed_at // MICROS_PER_SECOND, error=letter.error,
        attempts=letter.attempts, preview=AdminPreview(payload),
    )  # fmt: skip
