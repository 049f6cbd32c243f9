"""Staged messages and runs of the reference store: dicts; chunks are published by pushing them one after the other."""

from __future__ import annotations

from skep.arrow.staged import Unpacked
from skep.clock import Instant
from skep.ids import Id, id_after
from skep.model import NewMessage, PushBatch, PushOutcome
from skep.model.record import PipelineRun, Receipt
from skep.model.staging import (
    Attempt,
    EpochKey,
    Published,
    PublishTally,
    StagedChunk,
    already_published,
    check_staged,
)
from skep.store.rules import PIPELINE_RUNS
from tests.support.copies import copied
from tests.support.reference_records import ReferenceRecords


class ReferenceStaging(ReferenceRecords):
    """Verbs for what is in no log yet."""

    def __init__(self) -> None:
        super().__init__()
        self.chunks: dict[tuple[EpochKey, int, int, int], StagedChunk] = {}
        self.runs_kept: dict[tuple[str, str], PipelineRun] = {}

    def _push(self, batch: PushBatch, now: Instant, create_queues: bool) -> PushOutcome:
        raise NotImplementedError

    def check_order(self, batch: PushBatch) -> None:
        raise NotImplementedError

    async def stage(self, chunk: StagedChunk, now: Instant) -> None:
        if self.living(chunk.epoch.receipt, now) is not None:
            raise already_published(chunk.epoch)
        self.chunks[chunk.epoch, chunk.partition, chunk.attempt, chunk.number] = chunk

    async def staged_queues(self, epoch: EpochKey) -> list[str]:
        return sorted({name for chunk in self.chunks.values() if chunk.epoch == epoch for name in chunk.queues})

    async def staged(self, epoch: EpochKey) -> list[tuple[Attempt, int]]:
        found: dict[tuple[int, int], list[int]] = {}
        for (of, partition, attempt, _), chunk in sorted(self.chunks.items()):
            if of == epoch:
                found.setdefault((partition, attempt), []).append(chunk.messages)
        return [(Attempt(*at, sum(messages)), len(messages)) for at, messages in found.items()]

    async def publish(
        self,
        epoch: EpochKey,
        attempts: list[Attempt],
        first_id: Id,
        expires_at: Instant,
        now: Instant,
        create_queues: bool = True,
    ) -> Published:
        known = self.living(epoch.receipt, now)
        if known is not None:
            return Published(known.answer, [])
        check_staged(epoch, attempts, {(a.partition, a.attempt): a.messages for a, _ in await self.staged(epoch)})
        before, tally = copied(self.logs), PublishTally(epoch)
        try:
            for one in sorted(attempts):
                for at in sorted(self.chunks):
                    if at[:3] == (epoch, one.partition, one.attempt):
                        self._publish_chunk(self.chunks[at], first_id, tally, now, create_queues)
                        first_id = id_after(first_id, self.chunks[at].messages)
        except BaseException:
            self.logs = before
            raise
        published = tally.published()
        self.receipts_kept[epoch.receipt] = Receipt(epoch.receipt, published.answer, expires_at)
        await self.abort(epoch)
        return published

    def _publish_chunk(
        self, chunk: StagedChunk, first_id: Id, tally: PublishTally, now: Instant, create_queues: bool
    ) -> None:
        unpacked = Unpacked(chunk.data, chunk.epoch.tenant)
        if unpacked.queue is None:
            batch = unpacked.batch(first_id)
        else:
            rows = unpacked.rows(first_id)
            ids = [Id(bytes(id_)) for id_ in rows.ids()]
            messages = [
                NewMessage(unpacked.queue, payload.as_py(), partition.as_py().decode(), headers=rows.headers)
                for partition, payload in zip(rows.partition, rows.payload, strict=True)
            ]
            batch = PushBatch(messages, ids)
        self.check_order(batch)
        outcome = self._push(batch, now, create_queues)
        tally.pushed([message.queue.name for message in batch.messages], outcome)

    async def abort(self, epoch: EpochKey, partition: int | None = None, attempt: int | None = None) -> int:
        meant = [at for at in self.chunks if at[0] == epoch and (partition is None or at[1:3] == (partition, attempt))]
        for at in meant:
            del self.chunks[at]
        return len(meant)

    # runs of pipelines

    async def put_run(self, tenant: str, id_: str, document: bytes, now: Instant) -> PipelineRun:
        known = self.runs_kept.get((tenant, id_))
        run = PipelineRun(id_, known.started_at if known else now, now, document, tenant)
        self.runs_kept[tenant, id_] = run
        for old in (await self.runs(tenant, 10**9))[PIPELINE_RUNS:]:
            del self.runs_kept[tenant, old.id]
        return run

    async def runs(self, tenant: str, limit: int = 100) -> list[PipelineRun]:
        mine = [run for run in self.runs_kept.values() if run.tenant == tenant]
        return sorted(mine, key=lambda run: (run.started_at, run.id), reverse=True)[:limit]

    async def run(self, tenant: str, id_: str) -> PipelineRun | None:
        return self.runs_kept.get((tenant, id_))
