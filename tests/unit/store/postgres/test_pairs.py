"""Two calls at once: whatever two verbs share, each statement of one may be the moment at which the other comes.

The first call stops after a statement. The second runs until it ends or waits, then both go on to their ends. Neither fails with
anything but a refusal, and after that all rules about the tables hold, and what is left can be popped and acked, each message once.
"""

from __future__ import annotations

import itertools
import os
import random
import zlib
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import asyncpg
import pytest
import pytest_asyncio

from skep.clock import ManualClock
from skep.errors import Code, SkepError
from skep.model import Delivery, Ordering, Queue
from skep.store.postgres import PostgresStore
from tests.conftest import EMPTY
from tests.contract.driver import Driver, check_account, seqs
from tests.support.postgres import PostgresServer
from tests.unit.store.postgres.conftest import TENANTS
from tests.unit.store.postgres.holding import Session
from tests.unit.store.postgres.invariants import BURIED_ONCE, violations
from tests.unit.store.postgres.stepping import COMMIT, Race, Track, write_pauses
from tests.unit.store.postgres.verbs import (
    VERBS,
    Verb,
    abort,
    ack,
    auto_ack_and_bury_for_a_new_group,
    cancel_operation,
    change_of_ordering,
    clear,
    compact,
    delete_group,
    delete_message,
    delete_queue,
    expire,
    look,
    look_at_leases,
    nack_some,
    perform_an_ack,
    pop,
    pop_and_bury,
    pop_some,
    promote,
    purge,
    push,
    push_plain,
    put_right,
    reject_in_two_queues,
    replay,
    retain,
    retain_settled,
    sample,
    seek,
    seek_of_a_new_group,
    sweep,
    transact_a_rejection,
    transact_together,
)

FIRST = [purge, replay]
LAST = [pop_and_bury, auto_ack_and_bury_for_a_new_group, expire, promote, retain, retain_settled, change_of_ordering, sweep]  # fmt: skip
"""Calls that are made ready before others, whose leases they would end, and after: time passes, or the queue is emptied or deleted."""
Pair = tuple[Verb, Verb]
SHARP: list[Pair] = [
    (pop_some, seek),
    (nack_some, clear),
    (ack, delete_group),
    (push, push_plain),
    (pop, delete_message),
]
"""Pairs that went wrong once."""


def chosen() -> list[Pair]:
    """Few pairs in which every call comes once, if it shares anything."""
    found = list(SHARP)
    left = [verb for verb in VERBS if not any(verb in pair for pair in SHARP)]
    while left:
        verb = left.pop(0)
        sharing = [other for other in left if VERBS[verb].shares(VERBS[other])]
        if sharing:
            # The one in the middle: the neighbours of a verb in the table are its variants.
            found.append((verb, sharing[len(sharing) // 2]))
            left.remove(found[-1][1])
        else:
            found += [(verb, other) for other in VERBS if VERBS[verb].shares(VERBS[other])][:1]
    return found


IN_TWO_STEPS = {transact_together, transact_a_rejection, auto_ack_and_bury_for_a_new_group}
"""Calls that lock logs in two steps (docs/log.md): a deadlock is ended by PostgreSQL, and the loser is tried again."""
BEGUN_ANEW = {seek, seek_of_a_new_group, delete_group}
"""Calls after which a group gets its messages again, also those that it has given up."""
EVERY_STEP = "SKEP_EVERY_STEP" in os.environ
SOME_STEPS = 2
"""How many of a call's steps the others come at, besides that before its commit; each run has others."""
LEASE_SECONDS, LEASES_ARE_OVER = 30, 61
"""A renewed lease has 60 seconds. Messages are not too old by then."""
GROUPS = """
SELECT q.name AS queue, g.name FROM queue q JOIN consumer_group g ON g.queue_id = q.id
WHERE q.tenant = $1 AND q.deleted_at IS NULL AND NOT g.external ORDER BY q.name, g.name
"""
LEASES = {"partition_lease", "set_lease"}
APPENDED = {
    "lease_history", "failed_attempt", "dead_letter_change", "replay_history", "retention_history", "system_event", "entity_event", "past",
    "sample", "trace_event", "audit", "clock", "endpoint", "session", "watcher", "access_key",
}  # fmt: skip
"""Tables to which calls only append, or whose rows no two calls of the table share."""

ONE_STATEMENT = [abort, cancel_operation]
"""Calls that are over after their only statement: nobody sees what they lock."""


class PairedDriver(Driver):
    """A driver of two calls: who pops when nothing is left gets what the other call holds, so that both settle the same.

    And who makes a queue that is there has it.
    """

    def __init__(
        self, store: PostgresStore, clock: ManualClock, tenant: str, held: dict[tuple[str, ...], list[Delivery]]
    ) -> None:
        super().__init__(store, clock, tenant, checks=False)
        self.held = held

    async def create(self, name: str = "q", **settings: Any) -> Queue:
        return await self.store.get_queue(self.key(name)) or await super().create(name, **settings)

    async def pop(self, queue: str = "q", **fields: Any) -> list[Delivery]:
        deliveries = await super().pop(queue, **fields)
        place = queue, fields.get("group", "")
        if not deliveries:
            return self.held.get(place, [])[: fields.get("batch")]
        self.held.setdefault(place, []).extend(deliveries)
        return deliveries


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def session(postgres_server: PostgresServer, tables_to_copy: str) -> AsyncIterator[Session]:
    """A session of a database whose functions pause."""
    dsn = postgres_server.create_database(template=tables_to_copy)
    session = await asyncpg.connect(dsn, server_settings={"search_path": "skep"})
    await write_pauses(session)
    await session.execute(
        f"ALTER DATABASE {await session.fetchval('SELECT current_database()')} SET deadlock_timeout = '50ms'"
    )
    yield session
    session.terminate()
    postgres_server.drop_database(dsn)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def track(postgres_server: PostgresServer, session: Session) -> AsyncIterator[Track]:
    dsn = postgres_server.dsn(await session.fetchval("SELECT current_database()"))
    stores = PostgresStore(dsn), PostgresStore(dsn)
    for store in stores:
        await store.open()
        store.shard = 0  # the same counters
    yield Track(*stores, session)
    for store in stores:
        await store.close()


async def ready(track: Track, ordering: Ordering, verbs: Pair) -> tuple[Driver, list[Callable[[], Awaitable[Any]]]]:
    """A tenant of its own with a queue, messages and a group that pops them; and two verbs that are about to be called."""
    clock, tenant = ManualClock(), next(TENANTS)
    held: dict[tuple[str, ...], list[Delivery]] = {}
    drivers = [PairedDriver(store, clock, tenant, held) for store in (track.first, track.second)]
    await drivers[1].create("q.dead", lease_seconds=LEASE_SECONDS)
    await drivers[1].create(
        ordering=ordering, lease_seconds=LEASE_SECONDS, max_age_seconds=100, dead_letter_queue="q.dead"
    )
    await drivers[1].push("1", "2", "3", "4")
    await drivers[1].ack(await drivers[1].pop_one())
    held.clear()
    order = [*FIRST, *(verb for verb in VERBS if verb not in FIRST + LAST), *LAST]
    calls = {place: await verbs[place](drivers[place]) for place in sorted((0, 1), key=lambda p: order.index(verbs[p]))}
    return Driver(track.second, clock, tenant, checks=False), [calls[0], calls[1]]


def check_answers(race: Race, verbs: Pair) -> None:
    """Nobody lost to a deadlock, or failed but by a refusal."""
    for answer, verb in zip((race.first, race.second), verbs, strict=True):
        if isinstance(answer, SkepError) and not (verb is compact and answer.code is Code.STORE_BUSY):
            assert not answer.code.startswith(("STORE_", "INTERNAL")), f"{verb.__name__}: {answer}"
    if not set(verbs) & IN_TWO_STEPS:
        assert not [error for error in race.lost if isinstance(error, asyncpg.DeadlockDetectedError)]


async def leased(driver: Driver, name: str, group: str) -> list[Delivery]:
    """All that a group can have at once."""
    got: list[Delivery] = []
    while more := await driver.pop(name, group=group):
        got += more
    return got


async def check_state(session: Session, driver: Driver, *, may_bury_again: bool) -> None:
    """All rules hold, also when time has passed and what is left was popped and acked: nothing comes twice, and nothing is left then."""
    allowed = BURIED_ONCE if may_bury_again else None
    assert await violations(session, driver.tenant, allowed) == []
    driver.clock.advance(LEASES_ARE_OVER)
    for row in await session.fetch(GROUPS, driver.tenant):
        got: list[Delivery] = []
        while more := await leased(driver, row["queue"], row["name"]):
            await driver.ack(*more)
            got += more
        assert not [seq for seq, count in Counter(seqs(got)).items() if count > 1], "I5"
    queues = await driver.store.list_queues(driver.tenant)
    for stats in await driver.store.stats_of(queues, driver.now):
        for group in stats.groups if stats else []:
            check_account(group)
            assert group.external or (group.pending, group.in_flight) == (0, 0), group
    assert await violations(session, driver.tenant, allowed) == []


async def run(track: Track, session: Session, ordering: Ordering, verbs: Pair, step: int) -> Race:
    """Make two calls ready, let the second come at a step of the first, and look at what is left."""
    driver, (first, second) = await ready(track, ordering, verbs)
    race = await track.race(first, second, step)
    try:
        check_answers(race, verbs)
        await check_state(session, driver, may_bury_again=bool(set(verbs) & BEGUN_ANEW))
    except Exception as error:
        error.add_note(f"{verbs[0].__name__} stood at step {step}, {race.place}: {race.first}")
        error.add_note(f"{verbs[1].__name__} came: {race.second}")
        raise
    return race


def name(pair: Pair) -> str:
    return "-".join(verb.__name__ for verb in pair)


CHOSEN = [
    pytest.param(pair, ordering, id=f"{name(pair)}-{ordering}")
    for pair, ordering in zip(chosen(), itertools.cycle([Ordering.UNORDERED, Ordering.PER_KEY]), strict=False)
]


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(("pair", "ordering"), CHOSEN)
async def test_two_calls_at_once(track: Track, session: Session, pair: Pair, ordering: Ordering) -> None:
    """The second comes before the commit of the first, and at one of its first steps."""
    await session.execute(EMPTY)
    for verbs in (pair, pair[::-1]):
        for step in (COMMIT, 1 + zlib.crc32(name(verbs).encode()) % 12):
            await run(track, session, ordering, verbs, step)


@pytest.mark.slow
@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("ordering", [Ordering.UNORDERED, Ordering.PER_KEY])
@pytest.mark.parametrize("verb", VERBS)
async def test_a_call_and_each_that_shares_something_with_it(
    track: Track, session: Session, verb: Verb, ordering: Ordering
) -> None:
    """The others come before the commit of the call, and at some of its steps, or at every one."""
    failed = list[Exception]()
    _, (call, _) = await ready(track, ordering, (verb, look))
    steps = range(1, 1 + len(await track.walk(call)))
    for other in (other for other in VERBS if VERBS[verb].shares(VERBS[other])):
        await session.execute(EMPTY)
        some = steps if EVERY_STEP else (COMMIT, *random.sample(steps, min(SOME_STEPS, len(steps))))
        for step in some:
            try:
                await run(track, session, ordering, (verb, other), step)
            except Exception as error:
                failed.append(error)
    if failed:
        raise ExceptionGroup("these pairs went wrong", failed)


def test_every_call_that_shares_anything_is_in_a_pair_of_the_default_run() -> None:
    alone = {verb for verb in VERBS if not any(VERBS[verb].shares(VERBS[other]) for other in VERBS)}

    assert {verb for pair in chosen() for verb in pair} == set(VERBS) - alone
    assert alone == {look, look_at_leases, sample}


async def run_from(track: Track, session: Session, ordering: Ordering, verbs: Pair, place: str, time: int = 1) -> None:
    """Let the second call come when the first has come to a place for the first or a later time."""
    await session.execute(EMPTY)
    _, (call, _) = await ready(track, ordering, (verbs[0], look))
    places = [found.partition(":")[0] for found, _ in await track.walk(call)]
    steps = [step for step, found in enumerate(places, 1) if found == place]
    await run(track, session, ordering, verbs, steps[time - 1])


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(("verb", "place"), [(delete_queue, "lock_log"), (perform_an_ack, "share_group")])
async def test_who_has_operations_and_who_changes_the_ordering_do_not_wait_for_each_other(
    track: Track, session: Session, verb: Verb, place: str
) -> None:
    """The change locks all operations, then groups and logs; the others write their operations at their end."""
    await run_from(track, session, Ordering.UNORDERED, (verb, change_of_ordering), place)


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("ordering", [Ordering.UNORDERED, Ordering.PER_KEY])
async def test_who_settles_for_two_groups_and_who_moves_their_deadlines_do_not_wait_for_each_other(
    track: Track, session: Session, ordering: Ordering
) -> None:
    """Both lock leases group by group."""
    await run_from(track, session, ordering, (reject_in_two_queues, put_right), "share_group", 2)


@pytest.mark.asyncio(loop_scope="module")
async def test_a_call_stops_in_functions_and_functions_that_these_call_between_statements_and_before_its_commit(
    track: Track,
) -> None:
    _, (call, _) = await ready(track, Ordering.UNORDERED, (seek_of_a_new_group, look))
    places = [place.partition(":")[0] for place, _ in await track.walk(call)]

    known = ["between statements", "take_group", "ensure_group", "lock_log", "before commit"]
    assert sorted(known, key=places.index) == known


@pytest.mark.slow
@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("verb", VERBS)
async def test_a_call_locks_and_writes_the_rows_of_its_line(track: Track, session: Session, verb: Verb) -> None:
    found = set[str]()
    for ordering in (Ordering.PER_KEY, Ordering.UNORDERED):
        await session.execute(EMPTY)
        _, (call, _) = await ready(track, ordering, (verb, look))
        found |= {table for _, tables in await track.walk(call) for table in tables}

    named = {"leases" if table in LEASES else table for table in found} - APPENDED
    assert named == (set() if verb in ONE_STATEMENT else VERBS[verb].rows)
