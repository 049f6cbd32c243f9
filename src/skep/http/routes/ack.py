"""`POST /api/v1/ack`, `ack/batch` and `lease/…/extend`: settle popped messages, one by one or by lease."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec import UNSET, UnsetType

from skep.engine import Engine
from skep.engine.validate import check_count
from skep.errors import Code, SkepError
from skep.http import queued
from skep.http.request.call import Answer, Call, json_answer
from skep.http.request.permission import POP
from skep.http.request.route import Route
from skep.ids import id_text
from skep.model import (
    WHOLE_LEASE,
    Outcome,
    QueueKey,
    Renewal,
    Retry,
    Seq,
    Settlement,
    SettleResult,
    SettleStatus,
)
from skep.model.key import Verb
from skep.observe.metrics import Meter
from skep.wire.leases import LeaseName, parse_lease_id
from skep.wire.messages import (
    Ack,
    AckBatchRequest,
    AckBatchResponse,
    AckResult,
    AckStatus,
    ExtendBatchRequest,
    ExtendBatchResponse,
    Extended,
    ExtendRequest,
    Released,
)
from skep.wire.operations import QueuedAckResponse
from skep.wire.times import to_datetime, to_instant

_decode_ack = msgspec.json.Decoder(Ack)
_decode_batch = msgspec.json.Decoder(AckBatchRequest)
_decode_extend = msgspec.json.Decoder(ExtendRequest)
_decode_extends = msgspec.json.Decoder(ExtendBatchRequest)

_OUTCOMES = {
    AckStatus.COMPLETED: (Outcome.ACK, Retry.BACKOFF),
    AckStatus.FAILED: (Outcome.NACK, Retry.BACKOFF),
    AckStatus.RETRY: (Outcome.NACK, Retry.NOW),
    AckStatus.DLQ: (Outcome.REJECT, Retry.BACKOFF),
}
ACK_EXAMPLE = {"leaseId": "LEASE_ID", "seq": 1, "status": "completed"}
_REASONS = {
    Code.STALE_LEASE: "the lease has ended, was never this one, or the message is settled already; it may be with someone else",
    Code.NOT_IN_LEASE: "the lease is good, but this seq is not in it or was settled already; if it was the throughSeq, all up to it was",
}


def routes(engine: Engine, meter: Meter) -> list[Route]:
    """Settling."""

    async def ack(call: Call) -> Answer:
        one = await call.json(_decode_ack)
        meant = settlements([one], call)
        [result] = done = await engine.settle(meant)
        count_settled(meter, meant, done)
        if result.status is SettleStatus.REFUSED:
            raise refusal(result.code)
        if result.status is SettleStatus.QUEUED:
            return queued.ack_answer([one], [result])
        return json_answer(results([one], [result])[0])

    async def ack_batch(call: Call) -> Answer:
        request = await call.json(_decode_batch)
        acks = request.acknowledgments
        if request.consumer_group is not None:
            _check_group(acks, request.consumer_group, call)
        meant = settlements(acks, call)
        done = await engine.settle(meant)
        count_settled(meter, meant, done)
        if done[0].status is SettleStatus.QUEUED:
            return queued.ack_answer(acks, done)
        return json_answer(AckBatchResponse(results(acks, done)))

    return [
        Route(
            method="POST", path="/api/v1/ack", handler=ack, request=Ack,
            answers={200: AckResult, 202: QueuedAckResponse}, summary="Settle one message, or complete a lease",
            description="With a leaseId alone all messages of the lease are completed, with throughSeq those up to it."
            " 409 with STALE_LEASE or NOT_IN_LEASE when nothing changed; 202 when it was queued.",
            tag="Messages", verb="ack", access=POP, example=ACK_EXAMPLE,
        ),
        Route(
            method="POST", path="/api/v1/ack/batch", handler=ack_batch, request=AckBatchRequest,
            answers={200: AckBatchResponse, 202: QueuedAckResponse}, summary="Settle messages or leases, each on its own merits",
            description="202 when they were queued.", tag="Messages", verb="ack", access=POP,
            example={"acknowledgments": [ACK_EXAMPLE]},
        ),
        *_lease_routes(engine),
    ]  # fmt: skip


def _lease_routes(engine: Engine) -> list[Route]:
    """Extending and releasing leases."""

    async def extend(call: Call) -> Answer:
        request = await call.json(_decode_extend, empty=ExtendRequest())
        [told] = await extended([call.path("lease")], request.lease_seconds, call)
        if told.code is not None:
            raise refusal(told.code)
        return json_answer(told)

    async def release(call: Call) -> Answer:
        text = call.path("lease")
        name = _lease(text, call)
        if not await engine.groups.release_lease(name.key, name.group, name.partition, name.token):
            raise refusal(Code.STALE_LEASE)
        return json_answer(Released(text, True))

    async def extend_batch(call: Call) -> Answer:
        request = await call.json(_decode_extends)
        return json_answer(ExtendBatchResponse(await extended(request.lease_ids, request.lease_seconds, call)))

    async def extended(lease_ids: Sequence[str], lease_seconds: float | None, call: Call) -> list[Extended]:
        # Before the queues are asked for their own: each may be another.
        check_count(len(lease_ids), engine.settings.limits.settlements, "the number of leases")
        names = [_lease(text, call) for text in lease_ids]
        own = {} if lease_seconds is not None else {key: await _lease_seconds(engine, key) for key in _keys(names)}
        renewals = [
            Renewal(
                queue=name.key, partition=name.partition, token=name.token, group=name.group,
                lease_seconds=own[name.key] if lease_seconds is None else lease_seconds,
            )
            for name in names
        ]  # fmt: skip
        renewed = await engine.renew(renewals)
        return [
            Extended(text, None if result.deadline is None else to_datetime(result.deadline), result.code)
            for text, result in zip(lease_ids, renewed, strict=True)
        ]

    return [
        Route(
            method="POST", path="/api/v1/lease/{lease}/extend", handler=extend, request=ExtendRequest, optional=True,
            answers={200: Extended}, summary="Keep a lease for longer", tag="Messages", verb="extend", access=POP,
            example={"leaseSeconds": 60},
        ),
        Route(
            method="POST", path="/api/v1/lease/{lease}/release", handler=release, answers={200: Released},
            summary="Release a lease: its messages are delivered again at once",
            description="Its id counts no more, whoever holds it. The delivery was an attempt. 409 with STALE_LEASE when it has ended.",
            tag="Messages", verb="release", access=POP,
        ),
        Route(
            method="POST", path="/api/v1/leases/extend", handler=extend_batch, request=ExtendBatchRequest,
            answers={200: ExtendBatchResponse}, summary="Keep several leases for longer",
            tag="Messages", verb="extend", access=POP, example={"leaseIds": ["LEASE_ID"], "leaseSeconds": 60},
        ),
    ]  # fmt: skip


def _check_group(acks: Sequence[Ack], group: str, call: Call) -> None:
    for lease_id in dict.fromkeys(ack.lease_id for ack in acks):
        if (found := _lease(lease_id, call).group) != group:
            raise SkepError(
                Code.INVALID_REQUEST,
                f"a lease is of the group {found!r}, and the batch says {group[:100]!r}. Send the acks of other groups apart,"
                " or leave consumerGroup out: each lease knows its group.",
            )


def settlements(acks: Sequence[Ack], call: Call) -> list[Settlement]:
    """The settlements of the acks, if the caller may make them."""
    leases: dict[str, LeaseName] = {}
    meant = []
    for ack in acks:
        lease = leases.get(ack.lease_id)
        if lease is None:
            lease = leases[ack.lease_id] = _lease(ack.lease_id, call)
        seq = ack.seq
        if seq is UNSET:
            meant.append(_lease_settlement(ack, lease))
            continue
        if ack.through_seq is not UNSET:
            raise SkepError(
                Code.INVALID_REQUEST, "give seq for one message or throughSeq for a lease up to it, not both"
            )
        outcome, retry = _OUTCOMES[ack.status]
        retry_at = None
        if ack.retry_at is not None:
            if ack.status is not AckStatus.RETRY:
                raise SkepError(Code.INVALID_REQUEST, "retryAt goes with the status retry")
            retry, retry_at = Retry.AT, to_instant(ack.retry_at)
        meant.append(
            Settlement(
                queue=lease.key, partition=lease.partition, seq=Seq(seq), token=lease.token, group=lease.group,
                outcome=outcome, error=ack.error, retry=retry, retry_at=retry_at,
            )
        )  # fmt: skip
    return meant


def _lease_settlement(ack: Ack, lease: LeaseName) -> Settlement:
    """The settlement of an ack without a seq: it completes the lease, whole or up to a seq."""
    if ack.status is not AckStatus.COMPLETED or ack.error is not None or ack.retry_at is not None:
        raise SkepError(
            Code.INVALID_REQUEST,
            "without a seq a lease is completed, and nothing else: give the seq of each message that failed, or release the lease",
        )
    seq = WHOLE_LEASE if ack.through_seq is UNSET else Seq(ack.through_seq)
    return Settlement(
        queue=lease.key, partition=lease.partition, seq=seq, token=lease.token, group=lease.group,
        outcome=Outcome.ACK_THROUGH,
    )  # fmt: skip


def count_settled(meter: Meter, settled: Sequence[Settlement], done: Sequence[SettleResult]) -> None:
    """Count the results of settlements."""
    for settlement, result in zip(settled, done, strict=True):
        if result.repeated:
            continue
        counts = meter.known_queue(settlement.queue.tenant, settlement.queue.name)
        match result.status:
            case SettleStatus.COMPLETED:
                counts.completed += result.messages
            case SettleStatus.RETRYING:
                counts.retried += 1
            case SettleStatus.DEAD | SettleStatus.DISCARDED:
                counts.dead += 1
            case SettleStatus.REFUSED:
                counts.refused += 1
            case SettleStatus.QUEUED:
                pass  # nothing is settled yet


def results(acks: Sequence[Ack], settled: Sequence[SettleResult]) -> list[AckResult]:
    """The results as structs of the wire."""
    return [
        AckResult(
            seq, result.status, result.code, None if result.retry_at is None else to_datetime(result.retry_at),
            result.dead_letter_queue, result.repeated or UNSET, operation_id=_operation_id(result),
        ) if (seq := ack.seq) is not UNSET else lease_result(result)
        for ack, result in zip(acks, settled, strict=True)
    ]  # fmt: skip


def lease_result(result: SettleResult) -> AckResult:
    """The result of an ack of a lease: it has no seq, and says how many messages were completed."""
    messages = result.messages if result.status is SettleStatus.COMPLETED else UNSET
    return AckResult(
        None,
        result.status,
        result.code,
        repeated=result.repeated or UNSET,
        messages=messages,
        operation_id=_operation_id(result),
    )


def _operation_id(result: SettleResult) -> str | UnsetType:
    return UNSET if result.operation is None else id_text(result.operation.id)


def refusal(code: Code | None) -> SkepError:
    """The error of a refused settlement."""
    return SkepError(code or Code.INTERNAL, _REASONS.get(code or Code.INTERNAL, "refused"))


def _lease(text: str, call: Call) -> LeaseName:
    """The lease that an id names. Anyone can write such an id, so the queue in it is checked like any other."""
    lease = parse_lease_id(text)
    if lease.tenant != call.tenant:
        raise SkepError(Code.FORBIDDEN, "the lease is of another tenant")
    call.check(lease.key, Verb.POP)
    return lease


def _keys(names: Sequence[LeaseName]) -> set[QueueKey]:
    return {name.key for name in names}


async def _lease_seconds(engine: Engine, key: QueueKey) -> float:
    """The queue's lease_seconds; any value for a deleted queue, whose leases are stale anyway."""
    try:
        return (await engine.get_queue(key)).settings.lease_seconds
    except SkepError as error:
        if error.code is not Code.QUEUE_NOT_FOUND:
            raise
        return 1.0
