"""`DELETE /api/v1/messages/…` and `/api/v1/resources/queues/{queue}/messages/{seq}`: deleting one message that is not settled."""

from __future__ import annotations

from skep.engine import Engine
from skep.errors import Code, SkepError
from skep.http.deleting import delete_message
from skep.http.request import parameters
from skep.http.request.call import Answer, Call, json_answer
from skep.http.request.permission import ADMIN
from skep.http.request.route import Parameter
from skep.http.routes.messages import QUEUE, TAG, newest
from skep.http.routes.queues import DRY_RUN
from skep.http.routes.route_table import RouteTable
from skep.http.views import wanted_id
from skep.ids import Id, id_text
from skep.model import QueueKey, Seq
from skep.wire.browsing import MessageDeleted

MESSAGE_ID = Parameter("messageId", str, "delete it only if this is its id, a UUID")
MEANING = (
    "Nobody gets it again. A lease that holds it ends: its lease id is no longer valid, and its other messages are delivered again. "
    "The transaction id stays taken until its deduplication window ends. 409 with MESSAGE_SETTLED when every group has settled it."
)


ROUTES: RouteTable[Engine] = RouteTable(TAG)


@ROUTES.route(
    "DELETE", "/api/v1/resources/queues/{queue}/messages/{seq}", ADMIN, "Delete the message at a seq, for all groups",
    parameters=(Parameter("seq", int, "the message's seq"), MESSAGE_ID, DRY_RUN), answers={200: MessageDeleted},
    description=MEANING,
)  # fmt: skip
async def by_seq(engine: Engine, call: Call) -> Answer:
    key = call.queue(call.path("queue"))
    seq = Seq(parameters.position({"seq": call.path("seq")}, "seq") or 0)
    id_ = call.query.get("messageId")
    return await _deleted(engine, call, key, seq, None if id_ is None else wanted_id(id_))


async def _deleted(engine: Engine, call: Call, key: QueueKey, seq: Seq, id_: Id | None) -> Answer:
    dry_run = parameters.flag(call.query, "dryRun")
    done = await delete_message(engine, call, key, seq, id_, dry_run=dry_run)
    told = (key.name, done.partition, done.seq, id_text(done.id), done.transaction_id, dry_run)
    return json_answer(MessageDeleted(*told, done.groups, done.leases))


@ROUTES.route(
    "DELETE", "/api/v1/messages/{partition}/{transactionId}", ADMIN,
    "Delete the newest message with a transaction id, for all groups", parameters=(QUEUE, DRY_RUN),
    answers={200: MessageDeleted}, description=MEANING,
)  # fmt: skip
async def by_transaction_id(engine: Engine, call: Call) -> Answer:
    key = call.queue(parameters.needed(call.query, "queue"))
    message = await newest(engine, key, call.path("partition"), call.path("transactionId"))
    if message is None:
        raise SkepError(
            Code.MESSAGE_NOT_FOUND,
            "no message of the log has this partition and transaction id; cancel it if it is scheduled",
        )
    return await _deleted(engine, call, key, message.seq, message.id)
