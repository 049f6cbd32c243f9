"""A script of every verb, run in a process that dies at a chosen write; and what must be true of what it leaves.

The process tells its parent of each call before it is made and after it is answered, so the parent knows what was
acknowledged. `CrashingVfs` stands between SQLite and the disk, counts what is written, and kills the process:

- ``kill``: before the n-th write or sync, as `kill -9` would;
- ``tear``: after half of the n-th write;
- ``power``: like a power cut: whatever was not synced by then is undone first;
- ``lie``: the same on a disk that only claims to sync, which shows that the checks would notice.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import threading
from collections import defaultdict
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from multiprocessing.connection import Connection
from typing import Any

import apsw
from msgspec import structs

from skep.clock import Instant, ManualClock
from skep.ids import Id, IdMint
from skep.model import (
    FROM_NOW,
    WHOLE_LEASE,
    ClearScope,
    DeadLetterFilter,
    Delivery,
    NewMessage,
    Ordering,
    Outcome,
    PopRequest,
    PushBatch,
    QueueChanges,
    QueueKey,
    QueueSettings,
    Renewal,
    Retry,
    Seq,
    Settlement,
    Start,
    Token,
)
from skep.model.forgetting import SeqRange
from skep.model.record import Effect, EntityKey, NewEvent, Receipt, ReceiptKey
from skep.model.scheduled import Change, ScheduledFilter
from skep.model.transaction import Transaction
from skep.store.protocol import Store
from skep.store.sqlite import SqliteStore
from torture.history import Call
from torture.recorder import Recorder

Q, U, NEXT, OLD, BRIEF, POISONED, PERSONAL = (
    QueueKey(name, "crash") for name in ("q", "u", "next", "old", "brief", "poisoned", "personal")
)
DEAD, PERSONAL_DEAD = QueueKey("q.dead", "crash"), QueueKey("personal.dead", "crash")
ONCE = ("first", "second")
ALL = EntityKey("Counter", "all", "crash")
LEASE_SECONDS = 10.0
SETTINGS = {
    Q: QueueSettings(max_attempts=2, lease_seconds=LEASE_SECONDS),
    U: QueueSettings(ordering=Ordering.UNORDERED, max_attempts=2, lease_seconds=LEASE_SECONDS),
    OLD: QueueSettings(retention_seconds=1.0),
    BRIEF: QueueSettings(max_wait_seconds=1.0),
    POISONED: QueueSettings(max_attempts=5, lease_seconds=LEASE_SECONDS),
    PERSONAL: QueueSettings(max_attempts=5, lease_seconds=LEASE_SECONDS),
}
POISON = Seq(2)
CHECKED = (Q, U, NEXT)
UNDOING = ("power", "lie")
PIECE_BYTES = 64 * 1024
LIMIT = 100


class Teller(Recorder):
    """A recorder that tells of each call before it is made, too."""

    def __init__(self, store: Store, tell: Callable[[Call], None]) -> None:
        ticks = itertools.count(1)
        super().__init__(store, "scripted", lambda: next(ticks))
        self.tell = tell

    async def _record(self, verb: str, now: Instant, request: Any, call: Any) -> Any:
        started = self.tick()
        self.tell(Call(self.client, verb, started, None, now, request))
        answer = await call
        self.tell(Call(self.client, verb, started, self.tick(), now, request, answer))
        self.calls.append(Call(self.client, verb, started, None, now, request, answer))
        return answer


class Script:
    """Every verb at least once, in steps that stand on what earlier ones left, if they left anything."""

    def __init__(self, store: Store, tell: Callable[[Call], None]) -> None:
        self.store = store
        self.recorder = Teller(store, tell)
        self.clock = ManualClock()
        self.mint = IdMint(self.clock)
        self.held: list[Delivery] = []
        self.handled: list[Delivery] = []
        self.planned: dict[Change, Id] = {}

    @property
    def now(self) -> Instant:
        return self.clock.now()

    def steps(self) -> list[Callable[[], Awaitable[object]]]:
        return [
            self.create, self.push, self.push_to_several, self.push_again, self.schedule, self.schedule_some, self.change_schedule,
            self.pop, self.ack_one, self.ack_lease, self.nack_one, self.pop, self.reject_one, self.renew, self.push_to_who_waits, self.ack_for_who_waits, self.transact,
            self.push_once, self.pop, self.command, self.command_again, self.push_once, self.pop, self.command,
            self.pop_unordered, self.ack_lease, self.pop_unordered, self.settle_unordered, self.release, self.let_leases_run_out, self.pop, self.let_leases_run_out, self.pop,
            self.expire, self.promote, self.replay, self.purge, self.auto_ack, self.seek, self.update, self.clear,
            self.push_poison, self.pop_poison, self.delete_message, self.push_personal, self.forget,
            self.retain, self.forget_group, self.delete, self.keep_house, self.push, self.pop, self.ack_one,
        ]  # fmt: skip

    async def note(self, verb: str, request: Any, call: Coroutine[Any, Any, Any]) -> Any:
        return await self.recorder._record(verb, self.now, request, call)

    # push

    async def create(self) -> None:
        for key, settings in SETTINGS.items():
            await self.note("create", key, self.store.create_queue(key, settings, self.now))

    async def push_messages(self, *messages: NewMessage) -> None:
        await self.recorder.push([PushBatch(list(messages), self.mint.mint_many(len(messages)))], self.now)

    async def push(self) -> None:
        await self.push_messages(*(message(Q, str(n), partition="ab"[n % 2]) for n in range(8)))

    async def push_to_several(self) -> None:
        await self.push_messages(
            *(message(key, f"{key.name}{n}", transaction_id=f"t{n}") for key in (Q, U, OLD, BRIEF) for n in range(3))
        )

    async def push_again(self) -> None:
        await self.push_messages(*(message(Q, f"again{n}", transaction_id=f"t{n}") for n in range(4)))

    async def schedule(self) -> None:
        at = Instant(self.now + 5_000_000)
        await self.push_messages(*(message(key, "later", deliver_at=at) for key in (Q, Q, U)))

    async def schedule_some(self) -> None:
        """A message for each change."""
        at = Instant(self.now + 5_000_000)
        messages = [message(Q, what, deliver_at=at, transaction_id=what) for what in Change]
        ids = self.mint.mint_many(len(messages))
        self.planned = dict(zip(Change, ids, strict=True))
        await self.recorder.push([PushBatch(messages, ids)], self.now)

    async def change_schedule(self) -> None:
        for what, id_ in self.planned.items():
            wanted = ScheduledFilter(tenant=Q.tenant, queue=Q.name, ids=[id_])
            to = Instant(self.now + 7_000_000) if what is Change.MOVE else None
            await self.note(what, id_, self.store.scheduled.change(wanted, what, to, None, LIMIT, self.now))

    # pop and settle

    async def take(self, key: QueueKey, batch: int, group: str = "g", auto_ack: bool = False) -> list[Delivery]:
        token = Token(bytes(self.mint.mint()))
        request = PopRequest(queue=key, token=token, group=group, batch=batch, auto_ack=auto_ack)
        (result,) = await self.recorder.pop([request], self.now)
        return result.deliveries

    async def pop(self) -> None:
        self.held += await self.take(Q, 4)

    async def push_to_who_waits(self) -> None:
        """A message of a partition of its own, claimed by the push that brings it."""
        batch = PushBatch([message(Q, "awaited", partition="w")], self.mint.mint_many(1))
        request = PopRequest(queue=Q, token=Token(bytes(self.mint.mint())), group="g", batch=4)
        _, (result,) = await self.recorder.push_and_pop([batch], [request], self.now)
        self.held += result.deliveries if result is not None else []

    async def settle(self, *outcomes: Outcome) -> None:
        chosen = [self.held.pop(0) for _ in outcomes if self.held]
        settlements = [settlement(d, outcome) for d, outcome in zip(chosen, outcomes, strict=False)]
        if settlements:
            await self.recorder.settle(settlements, self.now)

    async def ack_one(self) -> None:
        await self.settle(Outcome.ACK)

    async def ack_lease(self) -> None:
        """The whole lease of the oldest message that is held."""
        if self.held:
            said = structs.replace(settlement(self.held[0], Outcome.ACK_THROUGH), seq=WHOLE_LEASE)
            place = (said.queue, said.partition, said.token)
            self.held = [one for one in self.held if (one.queue, one.partition, one.token) != place]
            await self.recorder.settle([said], self.now)

    async def ack_for_who_waits(self) -> None:
        """The lease of the message that came last, while another message of its partition waits to be claimed."""
        await self.recorder.push([PushBatch([message(Q, "next", partition="w")], self.mint.mint_many(1))], self.now)
        if self.held:
            said = settlement(self.held.pop(), Outcome.ACK)
            request = PopRequest(queue=Q, token=Token(bytes(self.mint.mint())), group="g", batch=4)
            _, (result,) = await self.recorder.settle_and_pop([said], [request], self.now)
            self.held += result.deliveries if result is not None else []

    async def nack_one(self) -> None:
        await self.settle(Outcome.NACK)

    async def reject_one(self) -> None:
        self.held.reverse()
        await self.settle(Outcome.REJECT)

    async def renew(self) -> None:
        for d in self.held[:1]:
            renewal = Renewal(
                queue=d.queue, partition=d.partition, token=d.token, lease_seconds=LEASE_SECONDS, group=d.group
            )
            await self.recorder.renew([renewal], self.now)

    async def release(self) -> None:
        """End the oldest lease and the youngest; time passes before anybody pops again, as the history has it of leases."""
        for one in self.held[:1] + self.held[-1:]:
            call = self.store.release_lease(one.queue, one.group, one.partition, one.token, self.now)
            await self.note("release_lease", one.seq, call)

    async def transact(self) -> None:
        settlements = [settlement(self.held.pop(0), Outcome.ACK)] if self.held else []
        batch = PushBatch([message(NEXT, "out"), message(Q, "back", partition="a")], self.mint.mint_many(2))
        await self.recorder.transact([Transaction(settlements, batch)], self.now)

    # receipts and entities

    async def push_once(self) -> None:
        """Two batches with receipts, whose answers name the message that they stand for."""
        batches = []
        for key in ONCE:
            (id_,) = ids = self.mint.mint_many(1)
            batches.append(PushBatch([message(NEXT, key)], ids, self.receipt(key, id_)))
        await self.recorder.push(batches, self.now)

    def receipt(self, key: str, id_: Id) -> Receipt:
        return Receipt(ReceiptKey("once", key, "crash"), b'"%s"' % id_.hex().encode(), Instant(self.now + 10**15))

    async def command(self) -> None:
        """Handle up to two messages: each adds to a counter of its own and to the one of all, in one transaction."""
        self.handled = [self.held.pop(0) for _ in range(2) if self.held]
        await self.handle(self.handled)

    async def command_again(self) -> None:
        """What was handled is handled again, as after a lost answer: nothing of it may happen twice."""
        await self.handle(self.handled)

    async def handle(self, deliveries: list[Delivery]) -> None:
        if not deliveries:
            return
        (known,) = await self.store.records.entities([ALL])
        version = known.version if known else 0
        total = int(known.state) if known else 0
        effects = []
        for number, delivery in enumerate(deliveries, 1):
            own = EntityKey("Counter", delivery.id.hex(), "crash")
            effects.append(Effect(own, 0, added(1, 2), b"3", delivery.id))
            effects.append(Effect(ALL, version + number - 1, added(1), b"%d" % (total + number), delivery.id))
        receipts = [self.receipt(delivery.id.hex(), delivery.id) for delivery in deliveries]
        batch = PushBatch([message(NEXT, "handled")], self.mint.mint_many(1))
        acks = [settlement(delivery, Outcome.ACK) for delivery in deliveries]
        await self.recorder.transact([Transaction(acks, batch, effects, receipts)], self.now)

    async def pop_unordered(self) -> None:
        self.held = await self.take(U, 2) + self.held

    async def settle_unordered(self) -> None:
        await self.settle(Outcome.NACK, Outcome.ACK)

    async def let_leases_run_out(self) -> None:
        self.clock.advance(LEASE_SECONDS)

    async def auto_ack(self) -> None:
        await self.take(OLD, LIMIT, auto_ack=True)
        await self.take(BRIEF, 1)

    # chores and the rest

    async def expire(self) -> None:
        for key in (Q, U, BRIEF):
            await self.note("expire", key, self.store.expire(key, self.now, LIMIT))

    async def promote(self) -> None:
        await self.note("promote", Q, self.store.promote(Q, self.now, 1))

    async def letters(self) -> list[Any]:
        if await self.store.get_queue(DEAD) is None:
            return []
        return list(await self.store.dead_letters(DeadLetterFilter(queue=DEAD), None, LIMIT))

    async def replay(self) -> None:
        letters = await self.letters()
        if letters:
            wanted = DeadLetterFilter(queue=DEAD, seqs=[letters[0].seq])
            await self.recorder.replay(wanted, self.mint.mint_many(1), Seq(LIMIT), self.now)

    async def purge(self) -> None:
        letters = await self.letters()
        if letters:
            wanted = DeadLetterFilter(queue=DEAD, seqs=[letters[0].seq])
            await self.note("purge", [letters[0].trace_id], self.store.purge(wanted, LIMIT, self.now))

    async def push_poison(self) -> None:
        await self.push_messages(*(message(POISONED, str(n)) for n in range(3)))

    async def pop_poison(self) -> None:
        await self.take(POISONED, 3)

    async def delete_message(self) -> None:
        """One of three that are held under one lease."""
        if await self.store.message(POISONED, POISON) is not None:
            call = self.store.delete_message(POISONED, POISON, None, self.now)
            await self.note("delete_message", (POISONED, POISON), call)

    async def push_personal(self) -> None:
        """Three messages. The first died, came back as the fourth, and died again; the others are held under one lease."""
        messages = [message(PERSONAL, str(n), transaction_id=f"t{n}") for n in range(3)]
        batch = PushBatch(messages, self.mint.mint_many(3))
        await self.note("personal", PERSONAL, self.store.push([batch], self.now))
        for number in (1, LIMIT):
            request = PopRequest(queue=PERSONAL, token=Token(bytes(self.mint.mint())), group="g", batch=number)
            (popped,) = await self.note("personal", PERSONAL, self.store.pop([request], self.now))
            rejected = [settlement(d, Outcome.REJECT) for d in popped.deliveries if d.seq in (1, 4)]
            await self.note("personal", PERSONAL, self.store.settle(rejected, self.now))
            if number == 1:
                wanted, ids = DeadLetterFilter(queue=PERSONAL_DEAD), self.mint.mint_many(1)
                await self.note("personal", PERSONAL, self.store.replay(wanted, ids, Seq(LIMIT), self.now))

    async def forget(self) -> None:
        """One that has died twice, and one of those that are held."""
        if await self.store.message(PERSONAL, Seq(4)) is not None:
            call = self.store.forget(PERSONAL, None, [SeqRange(1, 2)], Seq(0), LIMIT, self.now)
            await self.note("forget for good", PERSONAL, call)

    async def seek(self) -> None:
        await self.recorder.seek(Q, "h", FROM_NOW, self.now)
        await self.recorder.seek(Q, "h", Start(), self.now)

    async def update(self) -> None:
        await self.note("update", U, self.store.update_queue(U, QueueChanges(priority=3), self.now))

    async def clear(self) -> None:
        await self.note("clear", (U, ClearScope.SCHEDULED), self.store.clear(U, ClearScope.SCHEDULED, self.now))
        await self.note("clear", (BRIEF, ClearScope.ALL), self.store.clear(BRIEF, ClearScope.ALL, self.now))

    async def retain(self) -> None:
        await self.note("retain", OLD, self.store.retain(OLD, self.now, LIMIT))

    async def forget_group(self) -> None:
        await self.note("delete_group", (Q, "h"), self.store.delete_group(Q, "h", self.now))

    async def delete(self) -> None:
        await self.note("delete", BRIEF, self.store.delete_queue(BRIEF, self.now))

    async def keep_house(self) -> None:
        await self.note("sample", None, self.store.sample(self.now))
        await self.note("sweep", None, self.store.sweep(self.now, LIMIT))
        await self.note("maintain", None, self.store.maintain())


def message(queue: QueueKey, payload: str, **fields: Any) -> NewMessage:
    return NewMessage(queue=queue, payload=payload.encode(), **fields)


def added(*numbers: int) -> list[NewEvent]:
    return [NewEvent("Added", b'{"by":%d}' % number) for number in numbers]


def settlement(delivery: Delivery, outcome: Outcome) -> Settlement:
    return Settlement(
        queue=delivery.queue,
        partition=delivery.partition,
        seq=delivery.seq,
        token=delivery.token,
        group=delivery.group,
        outcome=outcome,
        retry=Retry.NOW,
    )


# the process that dies


class CrashingVfs(apsw.VFS):
    """The file system as SQLite sees it, until the n-th write.

    Several connections, in several threads, may have the same file open. A sync of one is a sync of the file, so what
    would be lost is known of files, not of who opened them.
    """

    def __init__(self, deadly: int, mode: str) -> None:
        self.base = apsw.vfs_names()[0]
        self.deadly = deadly
        self.mode = mode
        self.writes = 0
        self.files: list[CrashingFile] = []
        self.unsynced: dict[str, list[tuple[int, bytes, int]]] = defaultdict(list)
        self.dying = False
        super().__init__("crashing", self.base, makedefault=True)

    def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:
        file = CrashingFile(self, name, flags)
        self.files.append(file)
        return file

    def is_deadly(self) -> bool:
        if self.dying:
            threading.Event().wait()  # another thread is about to end the process
        self.writes += 1
        return self.writes == self.deadly

    def die(self) -> None:
        self.dying = True
        if self.mode in UNDOING:
            for file in {file.path: file for file in self.files}.values():
                file.undo()
        os.kill(os.getpid(), signal.SIGKILL)


class CrashingFile(apsw.VFSFile):
    """A file of which is remembered what was there before each write since its last sync."""

    def __init__(self, vfs: CrashingVfs, name: Any, flags: list[int]) -> None:
        super().__init__(vfs.base, name, flags)
        self.vfs = vfs
        self.path = name.filename() if isinstance(name, apsw.URIFilename) else str(name)

    def xWrite(self, data: bytes, offset: int) -> None:
        if self.vfs.is_deadly():
            if self.vfs.mode == "tear":
                super().xWrite(data[: len(data) // 2], offset)
            self.vfs.die()
        self._remember(offset, len(data))
        super().xWrite(data, offset)

    def xTruncate(self, newsize: int) -> None:
        if self.vfs.is_deadly():
            self.vfs.die()
        size = super().xFileSize()
        self._remember(newsize, max(0, size - newsize))
        super().xTruncate(newsize)

    def xSync(self, flags: int) -> None:
        if self.vfs.is_deadly():
            self.vfs.die()
        synced = len(self.vfs.unsynced[self.path])
        super().xSync(flags)
        if self.vfs.mode != "lie":
            del self.vfs.unsynced[self.path][:synced]

    def xClose(self) -> None:
        self.vfs.files.remove(self)
        super().xClose()

    def _remember(self, offset: int, count: int) -> None:
        if self.vfs.mode in UNDOING:
            size = super().xFileSize()
            readable = max(0, min(count, size - offset))
            before = super().xRead(readable, offset) if readable else b""
            self.vfs.unsynced[self.path].append((offset, before, size))

    def undo(self) -> None:
        for offset, before, size in reversed(self.vfs.unsynced[self.path]):
            # In pieces: SQLite's own files take no more than 128 KiB at once, and a log that was cut may have more.
            for start in range(0, len(before), PIECE_BYTES):
                super().xWrite(before[start : start + PIECE_BYTES], offset + start)
            super().xTruncate(size)


def run_script(path: str, deadly: int, mode: str, pipe: Connection) -> None:
    """The body of the process: the script on a file, to the end or to the deadly write."""
    vfs = CrashingVfs(deadly, mode)
    asyncio.run(_run_script(path, pipe))
    pipe.send(vfs.writes)
    pipe.close()


async def _run_script(path: str, pipe: Connection) -> None:
    # A small limit lets the log be moved into the database file in the midst of the script, too.
    store = SqliteStore(path, checkpoint_pages=60)
    await store.open()
    for step in Script(store, pipe.send).steps():
        await step()
    await store.close()


def merge(told: Sequence[Call]) -> list[Call]:
    """Each call once: with its answer where there was one."""
    answered = {call.started for call in told if call.ended is not None}
    return [call for call in told if call.ended is not None or call.started not in answered]
