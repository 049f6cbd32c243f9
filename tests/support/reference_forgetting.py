"""Forgetting messages in the reference: everything by looking at everything."""

from __future__ import annotations

from collections.abc import Sequence

from skep.clock import Instant
from skep.ids import Id
from skep.model import QueueKey, Seq, Token
from skep.model.forgetting import (
    ForgetFilter,
    ForgetStep,
    Forgotten,
    FoundLetter,
    FoundLetters,
    LetterPlace,
    SeqRange,
    Tombstone,
    check_log,
    check_ranges,
    runs_of,
)
from skep.model.history import TraceEvent
from tests.support.reference import Log, Reference

Spot = tuple[QueueKey, int]


class ReferenceForgetting(Reference):
    """What becomes of messages that are forgotten, and of all that stems from them."""

    told: list[tuple[str, TraceEvent]]

    async def forget(
        self,
        key: QueueKey,
        log: Instant | None,
        ranges: Sequence[SeqRange],
        after: Seq,
        limit: int,
        now: Instant,
        dry_run: bool = False,
    ) -> ForgetStep:
        queue = self.log(key)
        check_log(key.name, log, queue.queue.created_at)
        check_ranges(key.name, ranges, queue.last_seq)
        wanted = {seq for first, last in ranges for seq in range(first, last + 1) if seq > after}
        there = sorted(wanted & set(queue.entries))[:limit]
        end = Seq(there[-1]) if len(there) == limit and there[-1] < max(wanted) else None
        chosen = {(key, seq) for seq in wanted if end is None or seq <= end}
        spots = self._stems(chosen) - chosen
        left = [(self.logs[k], seq) for k, seq in sorted(spots) if k in self.logs and seq in self.logs[k].entries]
        letters = sum(seq in log_.dead for log_, seq in left)
        queues = [key, *sorted({k for k, _ in spots if k in self.logs and k != key})]
        if not dry_run:
            for other in queues:
                self._erase(self.logs[other], sorted(seq for k, seq in chosen | spots if k == other), now)
        return ForgetStep(len(there), queues, end, letters, len(left) - letters)

    def _stems(self, chosen: set[Spot]) -> set[Spot]:
        found: set[Spot] = set()
        new = set(chosen)
        while new:
            found |= new
            new = {spot for key, seq in new if key in self.logs for spot in self._next(key, seq)} - found
        return found

    def _next(self, key: QueueKey, seq: int) -> set[Spot]:
        """The letters of what is or was at a place, and what replays made of it."""
        log = self.logs[key]
        id_ = log.entries[seq].id if seq in log.entries else None
        found: set[Spot] = set()
        for other, grave in self.logs.items():
            if other.tenant != key.tenant:
                continue
            for letter in grave.dead.values():
                is_it = letter.created_at >= log.queue.created_at if id_ is None else letter.id == id_
                if (letter.source_queue, letter.source_seq) == (key.name, seq) and is_it:
                    found.add((other, letter.seq))
            for replay in grave.replays:
                if (other, replay.dead_seq) == (key, seq) or replay.dead_id == id_:
                    found |= {(other, replay.dead_seq), (QueueKey(replay.queue or "", key.tenant), replay.seq)}
        return found

    def _erase(self, log: Log, seqs: list[int], now: Instant) -> None:
        ids: set[Id] = set()
        for seq in seqs:
            if seq not in log.entries:
                continue
            ids.add(log.entries[seq].id)
            for group in log.groups.values():
                lease = group.lease_of(seq)
                if lease is not None:
                    lease.deadline, lease.token = min(lease.deadline, now), Token(b"nobody has this")
            self.take_away(log, seq, now)
        log.failures = [failure for failure in log.failures if failure.seq not in seqs]
        log.dedup = {key: kept for key, kept in log.dedup.items() if kept[0] not in ids}
        self.told = [(tenant, event) for tenant, event in getattr(self, "told", []) if event.message_id not in ids]
        name, tenant = log.queue.key.name, log.queue.key.tenant
        for grave in (grave for key, grave in self.logs.items() if key.tenant == tenant):
            grave.replays = [
                replay
                for replay in grave.replays
                if not (grave is log and replay.dead_seq in seqs) and not (replay.queue == name and replay.seq in seqs)
            ]
        known = {seq for stone in log.tombstones for seq in range(stone.first_seq, stone.last_seq + 1)}
        for first, last in runs_of(seq for seq in seqs if seq not in known):
            log.tombstones.append(Tombstone(len(log.tombstones) + 1, Seq(first), Seq(last), now))

    async def tombstones(self, key: QueueKey, after: int, limit: int) -> Forgotten:
        log = self.log(key)
        return Forgotten(log.queue.created_at, [stone for stone in log.tombstones if stone.position > after][:limit])

    async def letters_of_source(self, wanted: ForgetFilter, after: LetterPlace) -> FoundLetters:
        log = self.log(wanted.queue)
        check_log(wanted.queue.name, wanted.log, log.queue.created_at)
        found = [
            (letter.source_seq, FoundLetter(grave.queue.key, letter.seq, letter.source_seq))
            for grave in self.logs.values()
            for letter in grave.dead.values()
            if grave.queue.key.tenant == wanted.queue.tenant
            and letter.source_queue == wanted.queue.name
            and letter.created_at >= log.queue.created_at
            and wanted.partition in (None, letter.partition)
            and wanted.transaction_id in (None, letter.transaction_id)
            and wanted.trace_id in (None, letter.trace_id)
        ]
        return FoundLetters([letter for _, letter in sorted(found, key=lambda one: one[0])], None)
