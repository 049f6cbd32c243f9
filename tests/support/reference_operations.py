"""Operations of the reference store: a list in the order of their positions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import msgspec

from skep.clock import Instant, seconds
from skep.errors import Code
from skep.ids import Id
from skep.model import (
    DEFAULT_PARTITION,
    NO_GROUP,
    DeadLetter,
    DeadReason,
    Ordering,
    PushBatch,
    PushOutcome,
    QueueKey,
    Seq,
    Settlement,
    SettleResult,
    Token,
)
from skep.model.operation import (
    PRIORITY,
    Claimed,
    ClaimedOperations,
    ClaimLimits,
    Enqueued,
    GivenBack,
    NewOperation,
    NewOperations,
    Operation,
    OperationFigures,
    OperationFilter,
    OperationKind,
    OperationPage,
    OperationStatus,
    Performed,
    WaitingOperations,
    decode_push,
    decode_settlements,
    encode_pushed,
    encode_settled,
    lane_of,
    operations_ahead,
    split,
)
from skep.store.rules import QUEUE_DELETED, check_sealed
from tests.support.copies import copied
from tests.support.reference_staging import ReferenceStaging

Place = tuple[QueueKey, str]


@dataclass
class Kept:
    """One operation."""

    asked: NewOperation
    shown: Operation
    token: Token | None = None

    @property
    def lane(self) -> tuple[str, QueueKey, str]:
        return lane_of(self.asked.kind), self.asked.queue, self.asked.partition

    def change(self, **fields: object) -> None:
        self.shown = msgspec.structs.replace(self.shown, **fields)


@dataclass
class Ledger:
    """All operations; positions are never given out twice."""

    kept: list[Kept] = field(default_factory=list)
    last: int = 0


class ReferenceOperations(ReferenceStaging):
    """Verbs for calls that wait for their turn."""

    def __init__(self) -> None:
        super().__init__()
        self.ledger = Ledger()

    def _push_once(self, batch: PushBatch, now: Instant, create_queues: bool) -> PushOutcome:
        raise NotImplementedError

    async def settle(self, settlements: Sequence[Settlement], now: Instant) -> list[SettleResult]:
        raise NotImplementedError

    @property
    def living_operations(self) -> list[Kept]:
        """Those that are yet to be done."""
        return [kept for kept in self.ledger.kept if kept.shown.live]

    def stored_place(self, place: Place) -> Place:
        """A partition as it is stored."""
        log = self.logs.get(place[0])
        return (place[0], DEFAULT_PARTITION) if log and log.settings.ordering is Ordering.FIFO else place

    def would_overtake(self, places: Iterable[Place]) -> bool:
        """Whether a push to one of these partitions waits."""
        waiting = {
            (kept.asked.queue, kept.asked.partition) for kept in self.living_operations if kept.lane[0] == "push"
        }
        return not waiting.isdisjoint({self.stored_place(place) for place in places})

    def check_order(self, batch: PushBatch) -> None:
        """Refuse what cannot wait."""
        if self.would_overtake((m.queue, m.partition) for m in batch.messages):
            raise operations_ahead()

    async def enqueue(self, requests: Sequence[NewOperations], now: Instant) -> list[list[Enqueued]]:
        fifo = {key: log.settings.ordering is Ordering.FIFO for key, log in self.logs.items()}
        return [[self._keep(one, now) for one in group] for group in [split(request, fifo) for request in requests]]

    def _keep(self, one: NewOperation, now: Instant) -> Enqueued:
        self.ledger.last += 1
        shown = Operation(
            position=self.ledger.last, id=one.id, kind=one.kind, queue=one.queue, partition=one.partition,
            priority=PRIORITY[one.kind], status=OperationStatus.PENDING, size_bytes=len(one.payload), messages=one.messages,
            created_at=now, started_at=None, processed_at=None, ready_at=None, blocked_at=None, error_at=None, worker=None,
            timeout_seconds=one.timeout_seconds, tries=0, max_retries=one.max_retries, error=None, code=None,
            dead_letter_queue=None, result=None,
        )  # fmt: skip
        self.ledger.kept.append(Kept(one, shown))
        return Enqueued(one.id, one.kind, one.queue, one.partition, shown.position, one.indexes)

    def _ahead(self, kept: Kept) -> list[int]:
        """Return the positions of all live ones before it in its partition."""
        return [
            other.shown.position
            for other in self.living_operations
            if other.lane == kept.lane and other.shown.position < kept.shown.position
        ]

    async def claim_operations(self, worker: str, token: Token, limits: ClaimLimits, now: Instant) -> ClaimedOperations:
        chosen: list[Kept] = []
        for kept in sorted(self.living_operations, key=lambda kept: (kept.shown.priority, kept.shown.position)):
            positions = {one.shown.position for one in chosen}
            if (kept.shown.ready_at or 0) > now or not positions.issuperset(self._ahead(kept)):
                continue
            messages = sum(one.asked.messages for one in [*chosen, kept])
            size = sum(len(one.asked.payload) for one in [*chosen, kept])
            full = len(chosen) >= limits.operations or messages > limits.messages or size > limits.bytes
            if chosen and (full or kept.lane[0] != chosen[0].lane[0] or kept.shown.tries):
                break
            chosen.append(kept)
            if kept.shown.tries:
                break
        for kept in chosen:
            # Each claim that was lost before makes this one last twice as long, up to 64 times.
            deadline = Instant(now + seconds(kept.asked.timeout_seconds) * min(64, 2**kept.shown.tries))
            kept.token = token
            if kept.shown.status is OperationStatus.PROCESSING:
                failing = kept.shown.code is Code.INTERNAL and kept.shown.blocked_at is not None
                kept.change(blocked_at=kept.shown.blocked_at if failing else kept.shown.started_at)
                kept.change(code=Code.INTERNAL, error="the server that had it did not come back", error_at=now)
            kept.change(status=OperationStatus.PROCESSING, worker=worker, started_at=now, ready_at=deadline)
            kept.change(tries=kept.shown.tries + 1)
        claimed = [
            Claimed(
                kept.shown.position, kept.asked.id, kept.asked.kind, kept.asked.queue, kept.asked.partition,
                kept.asked.payload, kept.asked.messages, kept.shown.tries, kept.asked.max_retries,
                kept.asked.timeout_seconds, kept.shown.created_at, kept.shown.blocked_at, kept.shown.code,
                kept.shown.error,
            )
            for kept in sorted(chosen, key=lambda kept: kept.shown.position)
        ]  # fmt: skip
        return ClaimedOperations(claimed)

    def _ours(self, token: Token, positions: Iterable[int]) -> dict[int, Kept]:
        wanted = set(positions)
        return {
            kept.shown.position: kept
            for kept in self.living_operations
            if kept.token == token and kept.shown.position in wanted
        }

    async def perform(
        self, token: Token, claimed: Sequence[Claimed], now: Instant, create_queues: bool = True
    ) -> Performed:
        ours = self._ours(token, (one.position for one in claimed))
        asked_now = {one.position: one for one in claimed}
        todo: dict[int, Kept] = {}
        for position, kept in sorted(ours.items()):
            if set(todo).issuperset(self._ahead(kept)):
                todo[position] = kept
        lost = [one.position for one in claimed if one.position not in todo]
        before = copied((self.logs, self.receipts_kept))
        done, refused = dict[int, bytes](), dict[int, tuple[Code, str]]()
        for position, kept in todo.items():
            if kept.asked.kind is OperationKind.PUSH:
                outcome = self._push_once(asked_now[position].batch, now, create_queues)
                if outcome.refused:
                    codes = {result.code for result in outcome.results} - {Code.BATCH_REFUSED}
                    refused[position] = codes.pop() or Code.INTERNAL, "refused"
                done[position] = encode_pushed(outcome)
            else:
                asked = decode_settlements(kept.asked.payload, kept.asked.queue)
                done[position] = encode_settled(asked, await self.settle(asked, now))
        if refused:
            self.logs, self.receipts_kept = before
            return Performed({}, lost, refused)
        for position, result in done.items():
            todo[position].change(
                status=OperationStatus.COMPLETED,
                processed_at=now,
                result=result,
                error=None,
                code=None,
                error_at=None,
                blocked_at=None,
            )
        return Performed(done, lost, {})

    async def give_back(self, token: Token, back: Sequence[GivenBack], now: Instant) -> list[int]:
        ours = self._ours(token, (one.position for one in back))
        for one in back:
            if one.position in ours and one.retry_at is None:
                self._check_sealed(ours[one.position], one)
        for one in sorted(back, key=lambda one: one.position):
            if one.position not in ours:
                continue
            kept = ours[one.position]
            kept.token = None
            if one.retry_at is None:
                grave = self._give_up(kept, one, now) if kept.asked.kind is OperationKind.PUSH else None
                kept.change(
                    status=OperationStatus.FAILED, processed_at=now, error_at=now, error=one.error, code=one.code
                )
                kept.change(dead_letter_queue=grave)
            else:
                kept.change(ready_at=one.retry_at or None, blocked_at=one.blocked_at or kept.shown.blocked_at)
                if one.error is not None:
                    kept.change(error_at=now)
                kept.change(error=one.error or kept.shown.error, code=one.code or kept.shown.code)
                was_tried = kept.shown.blocked_at is not None
                kept.change(status=OperationStatus.BLOCKED if was_tried else OperationStatus.PENDING)
                kept.change(tries=kept.shown.tries - one.untried)
        return sorted(ours)

    def _check_sealed(self, kept: Kept, one: GivenBack) -> None:
        """Refuse to bury what its queue may not keep in plain."""
        key = kept.asked.queue
        if kept.asked.kind is OperationKind.PUSH and key in self.logs and self.grave_name(key) is not None:
            for message in _batch_to_bury(kept, one).messages:
                check_sealed(key.name, self.logs[key].settings.encryption_enabled, message.content_type)

    def _give_up(self, kept: Kept, one: GivenBack, now: Instant) -> str | None:
        key = kept.asked.queue
        name = self.grave_name(key) if key in self.logs else None
        if name is None:
            return None
        grave = self.make_dead_letter_queue(name, key.tenant, now)
        batch = _batch_to_bury(kept, one)
        for message, id_ in zip(batch.messages, batch.ids, strict=True):
            entry = self.append(grave, message, id_, now)
            grave.dead[entry.seq] = DeadLetter(
                queue=grave.queue.key, seq=Seq(entry.seq), id=id_, partition=message.partition, source_queue=key.name,
                source_seq=Seq(0), group=NO_GROUP, reason=DeadReason.OPERATION_FAILED, error=one.error,
                attempts=kept.shown.tries, transaction_id=message.transaction_id, trace_id=entry.trace_id,
                headers=message.headers, content_type=message.content_type, payload=message.payload, created_at=now,
                failed_at=now,
            )  # fmt: skip
        return name

    async def cancel_operation(self, tenant: str, id_: Id, now: Instant) -> bool:
        kept = self._find(tenant, id_)
        if kept is None or kept.shown.status not in (OperationStatus.PENDING, OperationStatus.BLOCKED):
            return False
        kept.change(status=OperationStatus.CANCELLED, processed_at=now)
        return True

    def end_operations(self, key: QueueKey, now: Instant) -> None:
        """A deleted queue takes its operations with it."""
        for kept in self.living_operations:
            if kept.asked.queue == key:
                kept.change(
                    status=OperationStatus.FAILED,
                    processed_at=now,
                    error_at=now,
                    error=QUEUE_DELETED,
                    code=Code.QUEUE_NOT_FOUND,
                )

    def _find(self, tenant: str, id_: Id) -> Kept | None:
        found = [kept for kept in self.ledger.kept if kept.asked.id == id_ and kept.asked.queue.tenant == tenant]
        return found[0] if found else None

    async def operation(self, tenant: str, id_: Id) -> Operation | None:
        kept = self._find(tenant, id_)
        return None if kept is None else kept.shown

    async def list_operations(self, wanted: OperationFilter, after: int | None, limit: int) -> OperationPage:
        found = [
            kept.shown
            for kept in reversed(self.ledger.kept)
            if (after is None or kept.shown.position < after)
            and kept.asked.queue.tenant == wanted.tenant
            and wanted.status in (None, kept.shown.status)
            and wanted.kind in (None, kept.asked.kind)
            and wanted.queue in (None, kept.asked.queue.name)
            and wanted.partition in (None, kept.asked.partition)
        ]
        page = [msgspec.structs.replace(one, result=None) for one in found[:limit]]
        return OperationPage(page, page[-1].position if len(page) == limit else None)

    async def waiting_operations(self, now: Instant, limit: int) -> WaitingOperations:
        live = self.living_operations[:limit]
        depth: dict[OperationKind, int] = {}
        for kept in live:
            depth[kept.asked.kind] = depth.get(kept.asked.kind, 0) + 1
        return WaitingOperations(
            depth,
            min((kept.shown.created_at for kept in live), default=None),
            sum(kept.shown.stuck(now) for kept in live),
            sum(kept.shown.blocked_at is not None for kept in live),
        )

    async def operation_figures(self, tenant: str, limit: int) -> list[OperationFigures]:
        groups: dict[tuple[int, OperationKind, OperationStatus], list[Operation]] = {}
        for kept in self.ledger.kept[-limit:]:
            if kept.asked.queue.tenant == tenant:
                key = kept.shown.priority, kept.asked.kind, kept.shown.status
                groups.setdefault(key, []).append(kept.shown)
        return [
            OperationFigures(
                kind, priority, status, len(found), min(o.created_at for o in found), max(o.created_at for o in found),
                _average([(o.processed_at - o.created_at) / 1e6 for o in found if o.processed_at is not None]),
            )
            for (priority, kind, status), found in sorted(groups.items())
        ]  # fmt: skip

    async def sweep_operations(self, completed_before: Instant, ended_before: Instant, limit: int) -> int:
        def aged(kept: Kept) -> bool:
            limit = completed_before if kept.shown.status is OperationStatus.COMPLETED else ended_before
            return kept.shown.processed_at is not None and kept.shown.processed_at <= limit

        doomed = [kept for kept in self.ledger.kept if aged(kept)][:limit]
        self.ledger.kept = [kept for kept in self.ledger.kept if kept not in doomed]
        return len(doomed)


def _batch_to_bury(kept: Kept, one: GivenBack) -> PushBatch:
    return decode_push(one.payload or kept.asked.payload, kept.asked.queue)


def _average(numbers: list[float]) -> float | None:
    return sum(numbers) / len(numbers) if numbers else None
