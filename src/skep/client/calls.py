"""The calls that move messages: the request of each, and how its answer is read. Nothing here sends anything."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from math import isfinite
from typing import Any, Literal, TypedDict

from msgspec import Struct
from msgspec.structs import replace

from skep.client.exchange import ACCEPTED, NO_CONTENT, ApiCall, ApiResponse, Request, path_part
from skep.client.log_calls import arrow_stream
from skep.client.method import part, post
from skep.client.options import no_others
from skep.client.outgoing import encode, repeatable
from skep.client.pushed import Pushed, Queued
from skep.client.reading import anything, reader
from skep.client.spelling import Unsaid
from skep.errors import Code, SkepError
from skep.wire.entities import EffectItem, ReceiptItem
from skep.wire.log import ARROW
from skep.wire.messages import (
    Ack,
    AckBatchRequest,
    AckBatchResponse,
    AckResult,
    ExtendBatchRequest,
    ExtendBatchResponse,
    Extended,
    ExtendRequest,
    PopBody,
    PoppedMessage,
    PopResponse,
    PushedMessage,
    PushItem,
    PushRequest,
    PushResponse,
    Released,
    TransactionRequest,
    TransactionResponse,
)
from skep.wire.traces import NewTraceEvent, TellRequest, TellResponse

Start = Literal["all", "new"] | datetime | int


class PopOptions(TypedDict, total=False):
    """Options of the pop.

    ``wait_seconds`` waits for the first message; ``partitions`` limits the number of partitions; ``start`` says where a new
    group begins: "all", "new", a time or a seq (offset); ``auto_ack`` settles the messages at once.
    """

    batch: int
    wait_seconds: float
    group: str
    partition: str
    partitions: int
    lease_seconds: float
    auto_ack: bool
    start: Start


POP_DEFAULTS = {"batch": 1, "wait_seconds": 0.0, "auto_ack": False, "lease_seconds": Unsaid("the queue's")}
_POP_OPTIONS = frozenset(PopOptions.__annotations__)
CONSUME_WAIT_SECONDS = 30.0
"""How long one long poll of `consume` lasts when it is not said."""
BUFFER_MS = 100
"""How long the server may hold a buffered push, by default."""


class Acked(Struct):
    """One result per ack, in order. ``queued`` is set too when the server queued the acks (202)."""

    results: list[AckResult]
    queued: Queued | None = None


class _Waiting(Struct):
    messages: list[PushedMessage] = []


_waiting = reader(_Waiting)
_push_response = reader(PushResponse)
_queued = reader(Queued)
_pop_response = reader(PopResponse)
_ack_response = reader(AckBatchResponse)


def push(items: Sequence[PushItem], buffering: tuple[int | None, int | None] | None = None) -> ApiCall[Pushed]:
    """Push messages, whole or not at all; with ``buffering`` the server answers before it stores them (QoS 0)."""
    wait_ms, most = buffering or (None, None)
    if buffering is not None and wait_ms is None and most is None:
        wait_ms = BUFFER_MS
    body = encode(PushRequest(list(items), wait_ms, most))
    return ApiCall(Request("POST", "/api/v1/push", body, repeatable=repeatable(items)), read_pushed)


def read_pushed(answer: ApiResponse) -> Pushed:
    """The outcome of a successful push."""
    if answer.status == ACCEPTED:
        return Pushed(_waiting(answer).messages, {}, queued=_queued(answer))
    response = _push_response(answer)
    return Pushed(response.messages, response.queues)


def pop(queue: str, options: PopOptions, acks: Sequence[Ack] = ()) -> ApiCall[list[PoppedMessage]]:
    """Lease messages of a queue; ``acks`` are settled first.

    The call may be repeated: if an answer is lost, its lease runs out and the messages come again. A repeated ack changes nothing.
    """
    path = f"/api/v1/pop/queue/{path_part(queue)}"
    partition = options.get("partition")
    if partition is not None:
        path += f"/partition/{path_part(partition)}"
    call = _pop(path, {}, options)
    return ApiCall(replace(call.request, body=encode(PopBody(list(acks)))), call.read) if acks else call


def queue_pop_options(partition: str | None, group: str | None, options: PopOptions) -> PopOptions:
    """The options of a pop: its own arguments, else the defaults of its queue object."""
    named: PopOptions = {}
    if partition is not None:
        named["partition"] = partition
    if group is not None:
        named["group"] = group
    return {**named, **options}


def pop_arrow(queue: str, options: PopOptions) -> ApiCall[bytes]:
    """Lease messages of a queue, as an Arrow stream; no bytes when there are none."""
    asked = pop(queue, options).request
    return ApiCall(replace(asked, headers={**(asked.headers or {}), "Accept": ARROW}), _popped_stream)


def _popped_stream(answer: ApiResponse) -> bytes:
    return b"" if answer.status == NO_CONTENT else arrow_stream(answer)


def pop_matching(namespace: str | None, task: str | None, options: PopOptions) -> ApiCall[list[PoppedMessage]]:
    """Lease messages of all queues of a namespace, a task or both."""
    if "partition" in options:
        raise SkepError(Code.INVALID_REQUEST, "a pop over several queues takes no partition")
    query = {name: text for name, text in (("namespace", namespace), ("task", task)) if text is not None}
    return _pop("/api/v1/pop", query, options)


def _pop(path: str, query: dict[str, str], options: PopOptions) -> ApiCall[list[PoppedMessage]]:
    no_others(options, _POP_OPTIONS)
    wait = options.get("wait_seconds", 0.0)
    if not (isfinite(wait) and wait >= 0):
        raise SkepError(Code.INVALID_REQUEST, f"the time to wait is a number of seconds, 0 or more, not {wait}")
    query["batch"] = str(options.get("batch", 1))
    if wait > 0:
        query["wait"], query["timeout"] = "true", repr(float(wait))
    if "group" in options:
        query["consumerGroup"] = options["group"]
    if "partitions" in options:
        query["partitions"] = str(options["partitions"])
    if "lease_seconds" in options:
        query["leaseSeconds"] = repr(float(options["lease_seconds"]))
    if options.get("auto_ack"):
        query["autoAck"] = "true"
    if "start" in options:
        query.update(_start(options["start"]))
    return ApiCall(Request("POST", path, query=query, wait_seconds=wait, says_who=True), _read_popped)


def _start(start: Start) -> dict[str, str]:
    if isinstance(start, datetime):
        return {"subscriptionFrom": start.isoformat()}
    if isinstance(start, int):
        return {"subscriptionFrom": str(start)}
    if start not in ("all", "new"):
        raise SkepError(Code.INVALID_REQUEST, f"'start' is all, new, a time or a seq, not {start!r}")
    return {"subscriptionMode": start}


def _read_popped(answer: ApiResponse) -> list[PoppedMessage]:
    return [] if answer.status == NO_CONTENT else _pop_response(answer).messages


def ack(one: Ack) -> ApiCall[Acked]:
    """Settle one message; a refusal is raised."""
    return ApiCall(Request("POST", "/api/v1/ack", encode(one)), _read_ack)


def ack_batch(acks: Sequence[Ack]) -> ApiCall[Acked]:
    """Settle messages, each independently of the others."""
    return ApiCall(Request("POST", "/api/v1/ack/batch", encode(AckBatchRequest(list(acks)))), read_acks)


_ack_result = reader(AckResult)


def _read_ack(answer: ApiResponse) -> Acked:
    return read_acks(answer) if answer.status == ACCEPTED else Acked([_ack_result(answer)])


def read_acks(answer: ApiResponse) -> Acked:
    """The outcome of successful acks."""
    return Acked(_ack_response(answer).results, _queued(answer) if answer.status == ACCEPTED else None)


def transaction(
    acks: Sequence[Ack],
    items: Sequence[PushItem],
    effects: Sequence[EffectItem] = (),
    receipts: Sequence[ReceiptItem] = (),
) -> ApiCall[TransactionResponse]:
    """Settle, push and record together.

    It may be repeated: acks are fenced by their lease, pushes by their transaction ids, effects by the version they were computed
    from, and receipts are there once.
    """
    body = encode(TransactionRequest(list(acks), list(items), list(effects), list(receipts)))
    fenced = bool(acks or effects or receipts) or repeatable(items)
    return ApiCall(Request("POST", "/api/v1/transaction", body, repeatable=fenced), _transaction_response)


_transaction_response = reader(TransactionResponse)


def extend(lease_id: str, lease_seconds: float | None) -> ApiCall[Extended]:
    """Keep a lease for longer; a refusal is raised."""
    return post(f"/api/v1/lease/{path_part(lease_id)}/extend", Extended, ExtendRequest(lease_seconds))


def release(lease_id: str) -> ApiCall[Released]:
    """Release a lease; a refusal is raised."""
    return post(f"/api/v1/lease/{path_part(lease_id)}/release", Released)


def extend_batch(lease_ids: Sequence[str], lease_seconds: float | None) -> ApiCall[list[Extended]]:
    """Keep several leases for longer."""
    asked = post("/api/v1/leases/extend", ExtendBatchResponse, ExtendBatchRequest(list(lease_ids), lease_seconds))
    return part(asked, lambda answer: answer.results)


def tell(event: NewTraceEvent) -> ApiCall[TellResponse]:
    """Add events to a trace."""
    return post("/api/v1/traces", TellResponse, TellRequest([event]))


def plain(method: str, path: str, query: dict[str, str] | None, body: object, repeatable: bool) -> ApiCall[Any]:
    """A call of any route, in plain values."""
    content = None if body is None else encode(body)
    return ApiCall(Request(method, path, content, query=query, repeatable=repeatable), anything)
