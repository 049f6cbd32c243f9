"""Killed at any write of any verb, a store has, when opened again, all that it acknowledged, and nothing by halves."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import pytest

from skep.clock import Instant, ManualClock, seconds
from skep.errors import Code, SkepError
from skep.ids import Id, IdMint
from skep.model import (
    ClearScope,
    DeadLetterFilter,
    MessageFilter,
    Outcome,
    PopRequest,
    PushBatch,
    PushStatus,
    QueueKey,
    Seq,
    SettleStatus,
    StoredMessage,
    Token,
)
from skep.model.scheduled import Change
from skep.store.postgres import PostgresStore
from skep.store.protocol import Store
from skep.store.sqlite import SqliteStore
from tests.contract.driver import check_account
from tests.support import crash
from tests.support.crash import (
    CHECKED,
    DEAD,
    LIMIT,
    PERSONAL,
    PERSONAL_DEAD,
    POISON,
    POISONED,
    Q,
    Script,
    U,
    merge,
    run_script,
    settlement,
)
from tests.support.crash_records import check_commands, check_pushed_once
from tests.support.forked import FORKED
from tests.support.postgres import PostgresServer, running_postgres
from torture.check import check
from torture.history import Call, History
from torture.recorder import Recorder

MODES = ("kill", "tear", "power")
SAMPLES = 30


def run_until(path: Path, deadly: int, mode: str) -> tuple[list[Call], int | None]:
    """Run the script in a process that dies at the given write; what it told, and how many writes when it did not die."""
    ours, theirs = FORKED.Pipe(duplex=False)
    process = FORKED.Process(target=run_script, args=(str(path), deadly, mode, theirs))
    process.start()
    theirs.close()
    told: list[Any] = []
    try:
        while True:
            told.append(ours.recv())
    except EOFError:
        process.join()
    writes = told.pop() if told and isinstance(told[-1], int) else None
    assert process.exitcode == (-9 if writes is None else 0)
    return merge(told), writes


async def check_what_is_left(store: Store, calls: list[Call]) -> None:
    """Open the store and hold it to what was acknowledged."""
    await store.open()
    try:
        await _check(store, calls)
    finally:
        await store.close()


async def _check(store: Store, calls: list[Call]) -> None:
    ticks = itertools.count(max((call.ended or call.started for call in calls), default=0) + 1)
    recorder = Recorder(store, "after", lambda: next(ticks))
    now = Instant(max((call.now for call in calls), default=ManualClock().now()) + seconds(1000))
    acknowledged = {p.message.queue for p in History(calls).pushes if p.is_stored and p.message.queue in CHECKED}
    existing = [key for key in CHECKED if await store.get_queue(key) is not None]
    assert acknowledged <= set(existing), "I1: a queue with stored messages is gone"
    for queue in await store.list_queues("crash"):
        for group in (await store.queue_stats(queue.key, now)).groups:
            check_account(group)
    logs: dict[QueueKey, list[StoredMessage]] = {}
    for key in existing:
        await store.promote(key, now, LIMIT)
        await recorder.stats(key, now)
        logs[key] = await recorder.log(key, now)
    delivered = [await drain(recorder, key, now) for key in existing]
    for key in existing:
        await recorder.stats(key, now)
    history = History(calls + recorder.calls, crash.SETTINGS)
    assert check(history) == []
    check_schedules(history, logs)
    await check_deleted(store, history, now)
    await check_forgotten(store, history, now)
    drained = [ids for found in delivered for ids in found]
    dead = await check_places(store, history, drained)
    if crash.NEXT in logs:
        await check_pushed_once(store, history, logs[crash.NEXT], now)
    await check_commands(store, history, drained + dead, now)


async def drain(recorder: Recorder, key: QueueKey, now: Instant) -> list[Id]:
    """Take and ack everything that one group can still get; the traces of what it was."""
    mint = IdMint(ManualClock())
    traces: list[Id] = []
    while True:
        request = PopRequest(queue=key, token=Token(bytes(mint.mint())), group="g", batch=LIMIT)
        (result,) = await recorder.pop([request], now)
        if not result.deliveries:
            return traces
        traces += [delivery.trace_id for delivery in result.deliveries]
        await recorder.settle([settlement(delivery, Outcome.ACK) for delivery in result.deliveries], now)


async def check_deleted(store: Store, history: History, now: Instant) -> None:
    """I12, I6: a deletion has happened to the log, to the accounts and to the lease, or to none of them."""
    calls, held = history.verb("delete_message"), [g.delivery for g in history.gives if g.delivery.queue == POISONED]
    if not calls:
        return
    is_gone = await store.message(POISONED, POISON) is None
    assert is_gone or calls[0].ended is None, "I1: a deletion that was answered is undone"
    before = await store.queue_stats(POISONED, now)
    assert (before.gaps, before.depth) == ((1, 2) if is_gone else (0, 3))
    results = await store.settle([settlement(delivery, Outcome.ACK) for delivery in held], now)
    if is_gone:
        assert {result.code for result in results} <= {Code.STALE_LEASE}
    else:
        assert {result.status for result in results} <= {SettleStatus.COMPLETED}
    groups = (await store.queue_stats(POISONED, now)).groups
    assert [group.expired for group in groups] in ([int(is_gone)], [])


async def check_forgotten(store: Store, history: History, now: Instant) -> None:
    """I15: messages are forgotten with all that stems from them, or are all still there. I12: the accounts say the same."""
    calls = history.verb("forget for good")
    if not calls:
        return
    is_gone = await store.message(PERSONAL, Seq(1)) is None
    assert is_gone or calls[0].ended is None, "I1: what was forgotten is there again"
    log = (await store.messages(MessageFilter(queue=PERSONAL), now)).messages
    letters = await store.dead_letters(DeadLetterFilter(queue=PERSONAL_DEAD), None, LIMIT)
    replays = await store.replays(PERSONAL_DEAD, None, None, LIMIT)
    stones = [(await store.tombstones(key, 0, LIMIT)).tombstones for key in (PERSONAL, PERSONAL_DEAD)]
    ranges = [[(stone.first_seq, stone.last_seq) for stone in found] for found in stones]
    stats = await store.queue_stats(PERSONAL, now)
    left = [message.seq for message in log], len(letters), len(replays), ranges, stats.gaps, stats.depth
    assert left == (
        (([3], 0, 0, [[(1, 2), (4, 4)], [(1, 2)]], 3, 1)) if is_gone else ([1, 2, 3, 4], 1, 1, [[], []], 0, 2)
    )
    batch = PushBatch([crash.message(PERSONAL, "0", transaction_id="t0")], IdMint(ManualClock()).mint_many(1))
    (pushed,) = (await store.push([batch], now))[0].results
    assert pushed.status is (PushStatus.STORED if is_gone else PushStatus.DUPLICATE)


def check_schedules(history: History, logs: dict[QueueKey, list[StoredMessage]]) -> None:
    """I1 for messages that were accepted for later: each is in the log once, unless it was cancelled."""
    cleared = {call.request[0] for call in history.verb("clear") if call.request[1] is ClearScope.SCHEDULED}
    cancelled = {call.request: call.answer for what in (Change.CANCEL, Change.FORGET) for call in history.verb(what)}
    for pushed in history.pushes:
        scheduled = pushed.result is not None and pushed.result.status is PushStatus.SCHEDULED
        if not scheduled or pushed.message.queue not in logs or pushed.message.queue in cleared:
            continue
        places = [m.id for m in logs[pushed.message.queue]].count(pushed.id)
        if pushed.id not in cancelled:
            assert places == 1, f"I1: a scheduled message is {places} times in the log"
        elif cancelled[pushed.id] is not None and cancelled[pushed.id].changed:
            assert places == 0, "I2: a cancelled message is in the log"
        else:
            assert places <= 1, "I1: a scheduled message is in the log twice"


async def check_places(store: Store, history: History, drained: list[Id]) -> list[Id]:
    """I11: for its group every message is in exactly one place: still to be had, completed, or a dead letter, and which are."""
    letters = []
    for name in (DEAD, QueueKey("u.dead", "crash")):
        if await store.get_queue(name) is not None:
            letters += await store.dead_letters(DeadLetterFilter(queue=name), None, LIMIT)
    dead = [letter.trace_id for letter in letters if letter.group == "g"]
    done, doubtful = completed_before(history)
    for pushed in history.pushes:
        if not pushed.is_stored or pushed.message.queue not in (Q, U):
            continue
        places = drained.count(pushed.id) + dead.count(pushed.id) + done.count(pushed.id)
        if pushed.id in doubtful:
            assert places <= 1, f"I11: {pushed.id.hex()} is in {places} places"
        else:
            assert places == 1, f"I11: {pushed.id.hex()} is in {places} places"
    return dead


def completed_before(history: History) -> tuple[list[Id], set[Id]]:
    """The traces of what was certainly completed by the script, and of what may have been, or was purged."""
    traces = {(g.delivery.queue, int(g.delivery.seq)): g.delivery.trace_id for g in history.gives}
    done, doubtful = [], set()
    for settled in history.settles:
        trace = traces.get((settled.settlement.queue, int(settled.settlement.seq)))
        if trace is None or settled.call.client == "after":
            continue
        if settled.result is None:
            doubtful.add(trace)
        elif settled.result.status is SettleStatus.COMPLETED:
            done.append(trace)
    for call in history.verb("purge"):
        doubtful |= set(call.request)
    return done, doubtful


def crash_and_check(folder: Path, deadly: int, mode: str) -> None:
    path = folder / f"{mode}-{deadly}.db"
    calls, _ = run_until(path, deadly, mode)
    if path.exists():
        with closing(apsw.Connection(str(path))) as connection:
            assert connection.pragma("integrity_check") == "ok"
    asyncio.run(check_what_is_left(SqliteStore(path), calls))
    for left in folder.glob(f"{path.name}*"):
        left.unlink()


@pytest.fixture(scope="module")
def writes(tmp_path_factory: pytest.TempPathFactory) -> int:
    """How many writes the whole script takes."""
    path = tmp_path_factory.mktemp("whole") / "whole.db"
    calls, count = run_until(path, 0, "kill")
    asyncio.run(check_what_is_left(SqliteStore(path), calls))
    verbs = {call.verb for call in calls}
    assert {"replay", "purge", "transact", "renew", "retain", "clear", "delete_group", "sweep"} <= verbs
    assert {*Change, "release_lease", "delete_message", "forget for good"} <= verbs
    changes = [call for call in calls if call.verb in (*Change, "release_lease")]
    assert all(call.answer == 1 or len(call.answer.changed) == 1 for call in changes)
    commands = [call.answer[0] for call in calls if call.verb == "transact" and call.request[0].effects]
    assert [o.conflict for o in commands] == [None, Code.RECEIPT_EXISTS, None]
    assert count is not None
    return count


def test_I1_I2_I7_I8_I11_I12_I15_survive_a_death_at_any_write(writes: int, tmp_path: Path) -> None:
    modes = itertools.cycle(MODES)
    for number in range(SAMPLES):
        crash_and_check(tmp_path, 1 + number * writes // SAMPLES, next(modes))


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_I1_I2_I7_I8_I11_I12_I15_survive_a_death_at_every_write(writes: int, tmp_path: Path, mode: str) -> None:
    for deadly in range(1, writes + 1):
        crash_and_check(tmp_path, deadly, mode)


@pytest.mark.parametrize("share", [0.6, 0.9])
def test_a_disk_that_lies_is_found_out(writes: int, tmp_path: Path, share: float) -> None:
    with pytest.raises(AssertionError, match="I1"):
        crash_and_check(tmp_path, int(writes * share), "lie")


# PostgreSQL


class CrashingServer:
    """A server that is killed during or after chosen steps of the script."""

    def __init__(self, server: PostgresServer, kill_at: Callable[[int], bool]) -> None:
        self.server = server
        self.kill_at = kill_at
        self.told: list[Call] = []

    async def run(self, dsn: str) -> list[Call]:
        store = PostgresStore(dsn)
        await store.open()
        script = Script(store, self.told.append)
        for number, step in enumerate(script.steps()):
            if not self.kill_at(number):
                await step()
                continue
            await self._die_during(step)
            await store.close()
            self.server.start()
            store = script.store = script.recorder.store = PostgresStore(dsn)
            await store.open()
        await store.close()
        return merge(self.told)

    async def _die_during(self, step: Callable[[], Any]) -> None:
        """Kill the server while the step runs; whether the step gets its answer is a matter of microseconds."""
        running = asyncio.ensure_future(step())
        await asyncio.to_thread(self.server.kill)
        try:
            await running
        except SkepError as error:
            if not error.retryable:
                raise


def crash_postgres_and_check(kill_at: Callable[[int], bool]) -> None:
    with running_postgres() as server:
        dsn = server.create_database()
        calls = asyncio.run(CrashingServer(server, kill_at).run(dsn))
        asyncio.run(check_what_is_left(PostgresStore(dsn), calls))


def test_I1_I2_I7_I8_I11_I12_I15_survive_the_death_of_postgres() -> None:
    crash_postgres_and_check(lambda step: step % 8 == 3)


@pytest.mark.slow
@pytest.mark.parametrize("offset", range(4))
def test_I1_I2_I7_I8_I11_I12_I15_survive_the_death_of_postgres_at_every_step(offset: int) -> None:
    crash_postgres_and_check(lambda step: step > 0 and step % 4 == offset)
