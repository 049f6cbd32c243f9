"""`/api/v1/staging…`: staged messages: they enter their logs all at once, and once, when they are published."""

from __future__ import annotations

from http import HTTPStatus

import msgspec

from skep.engine import Engine
from skep.engine.staging import StagedAt
from skep.http.producer import stamp
from skep.http.request import parameters
from skep.http.request.call import Answer, Call, json_answer
from skep.http.request.permission import PUSH
from skep.http.request.route import Media, Parameter
from skep.http.routes import bulk
from skep.http.routes.route_table import RouteTable, Served
from skep.model.staging import EpochKey
from skep.wire.log import ARROW
from skep.wire.staging import (
    PublishedAnswer,
    PublishRequest,
    StagedAttempt,
    StagingAborted,
    StagingResponse,
    StagingView,
)

QUERY = Parameter("query", str, "the writer: the id of a streaming query or of a batch job")
EPOCH = Parameter("epoch", int, "the writer's unit of work: the batch of a streaming query")
PARTITION = Parameter("partition", int, "the number of the task's partition")
ATTEMPT = Parameter("attempt", int, "the number of the task's attempt")
EPOCH_PATH = "/api/v1/staging/{query}/{epoch}"

_decode = msgspec.json.Decoder(PublishRequest)
_decode_answer = msgspec.json.Decoder(PublishedAnswer)


ROUTES: RouteTable[Served] = RouteTable("Staging")


@ROUTES.route(
    "POST", EPOCH_PATH + "/{partition}/{attempt}", PUSH, "Stage messages: they are stored, but enter no log yet",
    request=Media(ARROW),
    parameters=(
        QUERY, EPOCH, PARTITION, ATTEMPT,
        Parameter("chunk", int, "the number of this part of the attempt, 0 by default; a part that is sent again replaces the earlier one"),
        Parameter("queue", str, "the queue of a stream without a column queue"),
        Parameter(
            "consumerGroup", str, "messages that were pushed before come once more, to this group alone; their transaction ids are not deduplicated"
        ),
    ),
    answers={201: StagingResponse},
    description="The body is an Arrow stream as for a push. 409 when the epoch is published already.",
)  # fmt: skip
async def stage(served: Served, call: Call) -> Answer:
    place = StagedAt(
        epoch_of(call), path_number(call, "partition"), path_number(call, "attempt"),
        parameters.whole(call.query, "chunk", 0),
    )  # fmt: skip
    engine = served.engine
    audience = call.query.get("consumerGroup")
    batch, key = await bulk.read_stream(engine, call, await bulk.read_body(engine, call))
    if key is None or audience is not None:
        messages = await engine.staging.stage_messages(place, await bulk.read_messages(engine, call, batch), audience)
    else:
        messages = await engine.staging.stage_columns(place, key, batch, stamp(call.principal))
    told = StagingResponse(place.epoch.query, place.epoch.epoch, place.partition, place.attempt, place.chunk, messages)
    return json_answer(told, HTTPStatus.CREATED)


@ROUTES.route(
    "POST", EPOCH_PATH + "/publish", PUSH, "Publish one attempt of each partition: its messages enter their logs, all at once",
    parameters=(QUERY, EPOCH), request=PublishRequest, answers={200: PublishedAnswer},
    description="In the order of partition and chunk. The other attempts are dropped. A repeat gets the same answer and "
    "changes nothing. 409 when an attempt is not complete.",
    example={"attempts": [{"partition": 0, "attempt": 17, "messages": 1000}]},
)  # fmt: skip
async def publish(served: Served, call: Call) -> Answer:
    epoch = epoch_of(call)
    attempts = (await call.json(_decode)).attempts
    await check_epoch(served.engine, call, epoch)
    published = await served.engine.staging.publish(epoch, attempts)
    if published.queues:
        for name, told in _decode_answer.decode(published.answer).queues.items():
            served.meter.queue(epoch.tenant, name).pushed += told.messages
    return Answer(HTTPStatus.OK, published.answer)


@ROUTES.route(
    "GET", EPOCH_PATH, PUSH, "Show whether an epoch is published, and its staged messages", parameters=(QUERY, EPOCH),
    answers={200: StagingView},
)  # fmt: skip
async def show(served: Served, call: Call) -> Answer:
    epoch = epoch_of(call)
    await check_epoch(served.engine, call, epoch)
    found = await served.engine.staging.epoch(epoch)
    answer = None if found.answer is None else _decode_answer.decode(found.answer)
    attempts = [StagedAttempt(a.partition, a.attempt, a.messages, chunks) for a, chunks in found.attempts]
    return json_answer(StagingView(epoch.query, epoch.epoch, answer is not None, answer, attempts))


@ROUTES.route(
    "DELETE", EPOCH_PATH, PUSH, "Forget the staged messages of an epoch, or of one attempt",
    parameters=(QUERY, EPOCH, PARTITION, ATTEMPT), answers={200: StagingAborted},
    description="Published messages stay.",
)  # fmt: skip
async def abort(served: Served, call: Call) -> Answer:
    epoch = epoch_of(call)
    partition, attempt = (parameters.position(call.query, name) for name in ("partition", "attempt"))
    await check_epoch(served.engine, call, epoch)
    chunks = await served.engine.staging.abort(epoch, partition, attempt)
    return json_answer(StagingAborted(epoch.query, epoch.epoch, chunks))


def epoch_of(call: Call) -> EpochKey:
    """The epoch that the path names."""
    return EpochKey(call.path("query"), path_number(call, "epoch"), call.tenant)


async def check_epoch(engine: Engine, call: Call, epoch: EpochKey) -> None:
    """Refuse an epoch with staged or published messages of a queue that the caller may not push to."""
    if call.sees_all:
        call.checked = True
        return
    names = await engine.staging.queues(epoch)
    answer = (await engine.staging.epoch(epoch)).answer
    if answer is not None:
        names += _decode_answer.decode(answer).queues
    for name in names:
        call.queue(name)
    call.checked = True  # an epoch without messages touches no queue


def path_number(call: Call, name: str) -> int:
    """A whole number in the path."""
    return parameters.whole({name: call.path(name)}, name, 0)
