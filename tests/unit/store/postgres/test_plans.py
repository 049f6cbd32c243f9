"""Every statement rides its index, whatever the statistics say: of tables that are empty, full, or were either when last analyzed.

The cost law rests on this. A plan is made once per session, perhaps on the first message ever; whatever was chosen then has to do
when there are millions. The tables of leases are near empty again and again, and autovacuum analyzes them when it likes: with next to
no rows the planner takes a walk over all of an index to be as cheap as one look into it, and keeps to that when they have filled.
So no statement may read all of a table or of an index that grows.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from importlib import resources

import asyncpg
import msgspec
import pytest
import pytest_asyncio

from skep.arrow.log import LOG_SCHEMA
from skep.clock import Instant, ManualClock
from skep.model import (
    ClearScope,
    Delivery,
    LeaseFilter,
    MessageFilter,
    MessageState,
    Ordering,
    Outcome,
    Retry,
    Seq,
    Start,
)
from skep.model.forgetting import FIRST_LETTER, ForgetFilter
from skep.model.history import Journey
from skep.model.operation import (
    Claimed,
    ClaimLimits,
    GivenBack,
    NewOperations,
    OperationFilter,
    OperationKind,
    OperationStatus,
)
from skep.model.scheduled import Change, ScheduledFilter
from skep.store.postgres import PostgresStore, log
from skep.store.postgres.database import SQL as WATCHING
from skep.store.statements import load_statements
from tests.contract.driver import Driver
from tests.support.postgres import PostgresServer
from tests.unit.store.postgres.planning import Planner, Scan

GROWING = {"message", "partition_lease", "set_lease", "dedup", "lease_history", "scheduled", "dead_letter", "replay_history",
           "receipt", "entity", "entity_event", "endpoint", "staged_chunk", "pipeline_run", "operation", "trace_event", "audit", "failed_attempt", "forgotten"}  # fmt: skip
MANY = {"queue", "consumer_group", "group_counter", "sample", "retention_history", "past", "dead_letter_change"}
"""Tables with a row per queue or group, or per these and some time: only a chore may walk all of them."""

WALKS = {
    ("chores", "sweep_traces", "trace_event"): "from its oldest row, up to the limit; and its newest",
    ("chores", "sweep_retention", "queue"): "every queue has a history",
    ("chores", "sweep_leases", "lease_history"): "from its oldest row, up to the limit",
    ("chores", "sweep_failures", "failed_attempt"): "from its oldest row, up to the limit; and its newest",
    (
        "chores",
        "sum_dead_letters",
        "dead_letter_change",
    ): "a row for each queue and source, and what was added since the last chore",
    ("chores", "deleted_queue", "queue"): "by an index of the deleted ones only",
    ("operations", "waiting", "operation"): "by an index of the live ones only, up to the limit",
    ("operations", "figures", "operation"): "the latest, up to the limit",
}

ONCE = ("queues_ahead", "stamp_", "drop_", "cut_")
"""What is done once after a clock was put back may look at everything."""

UNPLANNED = ("LOCK ", "TRUNCATE ")

FILES = sorted(
    entry.name.removesuffix(".sql")
    for entry in resources.files("skep.store.postgres").iterdir()
    if entry.name.endswith(".sql") and entry.name != "log.sql"  # whose parts are put together
)

FILL = """
INSERT INTO queue (tenant, name, priority, ordering, lease_seconds, max_attempts, initial_backoff_ms, max_backoff_ms, max_depth,
                   max_age_seconds, retention_seconds, completed_retention_seconds, retention_ignores_groups,
                   delayed_processing_seconds, window_buffer_seconds, max_wait_seconds, dedup_window_seconds, paused,
                   created_at, updated_at)
SELECT 'other', 'q' || n, 0, 'per_key', 300, 3, 1000, 60000, 0, 0, 0, 0, false, 0, 0, 0, 86400, false, 1, 1
FROM generate_series(1, 2000) n;
INSERT INTO consumer_group (start_seq, scan_seq, created_at, queue_id, name)
SELECT 0, 0, 1, n % 2000 + 1, 'g' || n FROM generate_series(1, 5000) n;
INSERT INTO group_counter (group_id, queue_id, shard) SELECT g.id, g.queue_id, 0 FROM consumer_group g;
INSERT INTO message (queue_id, seq, created_at, id, trace_id, priority, partition, transaction_id, payload)
SELECT n % 20 + 1, n, n, gen_random_uuid(), gen_random_uuid(), 0, 'p' || n % 1000, 't' || n, '' FROM generate_series(1, 5000) n;
INSERT INTO failed_attempt (seq, leased_at, failed_at, queue_id, attempt, group_name, outcome)
SELECT n, n, 2::bigint ^ 60, n % 20 + 1, 1, 'g', 'retried' FROM generate_series(1, 5000) n;
INSERT INTO audit (at, expires_at, tenant, actor, action, queues)
SELECT n, n + 2::bigint ^ 60, 't' || n % 10, 'a', 'x', '[]' FROM generate_series(1, 5000) n;
INSERT INTO dedup (queue_id, transaction_id, partition, message_id, expires_at)
SELECT n % 20 + 1, 't' || n, 'p' || n % 1000, gen_random_uuid(), 2::bigint ^ 60 FROM generate_series(1, 5000) n;
INSERT INTO partition_lease (partition, queue_id, group_id, delivered_seq, pending, ready_at, oldest_at, newest_at, token)
SELECT 'p' || n, g.queue_id, g.id, 0, 1, 1, 1, 1, gen_random_uuid()
FROM generate_series(1, 5000) n JOIN consumer_group g ON g.name = 'g' || n % 10 + 1;
INSERT INTO set_lease (partition, queue_id, group_id, priority, seqs, ready_at, oldest_at, token)
SELECT 'p' || n, g.queue_id, g.id, 0, '{1}', 1, 1, gen_random_uuid()
FROM generate_series(1, 5000) n JOIN consumer_group g ON g.name = 'g' || n % 10 + 1;
INSERT INTO lease_history (first_seq, last_seq, leased_at, settled_at, queue_id, group_id, messages, completed, attempt, outcome,
                           partition)
SELECT n, n, 1, 2::bigint ^ 60, n % 20 + 1, 1, 1, 1, 1, 'completed', 'p' FROM generate_series(1, 5000) n;
INSERT INTO scheduled (due_at, id, trace_id, queue_id, priority, partition, payload)
SELECT 2::bigint ^ 60, gen_random_uuid(), gen_random_uuid(), n % 20 + 1, 0, 'p', '' FROM generate_series(1, 5000) n;
INSERT INTO dead_letter (seq, source_seq, created_at, failed_at, id, queue_id, attempts, partition, source_queue, group_name, reason)
SELECT n, n, 1, 1, gen_random_uuid(), n % 20 + 1, 1, 'p', 'q' || n % 20, 'g', 'rejected' FROM generate_series(1, 5000) n;
INSERT INTO receipt (key, scope, tenant, expires_at, answer)
SELECT 'k' || n, 's' || n % 3, 'other', 2::bigint ^ 60, '' FROM generate_series(1, 5000) n;
INSERT INTO entity (tenant, type, id, version, created_at, updated_at, state)
SELECT 'other', 't' || n % 3, n, 1, 1, 1, '' FROM generate_series(1, 5000) n;
INSERT INTO entity_event (entity, number, at, name, data) SELECT n, 1, 1, 'e', '' FROM generate_series(1, 5000) n;
INSERT INTO endpoint (tenant, url, failures, updated_at) SELECT 'other', n, 0, 1 FROM generate_series(1, 5000) n;
INSERT INTO past (tenant, queue_id, minute, at, pushed, completed, retried, dead, depth)
SELECT 'other', n % 20, n, n, 0, 0, 0, 0, 0 FROM generate_series(1, 5000) n;
INSERT INTO trace_event (at, tenant, trace_id, name, data)
SELECT 2::bigint ^ 60, 'other', gen_random_uuid(), 'e' || n % 20, '' FROM generate_series(1, 5000) n;
INSERT INTO operation (created_at, processed_at, ready_at, size_bytes, timeout_seconds, id, messages, max_retries, priority, kind, lane, status,
                       tenant, queue, partition)
SELECT n, CASE WHEN n % 2 = 0 THEN n END, 2::bigint ^ 60, 1, 30, gen_random_uuid(), 1, 3, 5, 'push', 'push',
       CASE WHEN n % 2 = 0 THEN 'completed' ELSE 'pending' END, 'other', 'q' || n % 20, 'p' || n % 100 FROM generate_series(1, 5000) n;
ANALYZE;
"""


LITTLE = FILL.replace("5000", "2000")

STATES = {
    "empty": "SELECT 1",
    "full": FILL,
    # Nothing was ever in it when it was analyzed.
    "analyzed": "ANALYZE",
    # 3,000 queues, each with one group of one lease.
    "small groups": FILL.replace("5000", "3000").replace("2000", "3000").replace("n % 10 + 1", "n").replace("n % 2000 + 1", "n"),
    # All but one of each were settled when autovacuum came by; all of them; and after a compaction (functions/compact.sql).
    "one row": LITTLE + "".join(f"DELETE FROM {t} WHERE ctid <> (SELECT min(ctid) FROM {t});" for t in sorted(GROWING | MANY)) + "ANALYZE",
    "drained": LITTLE + "".join(f"DELETE FROM {t};" for t in sorted(GROWING | MANY)) + "ANALYZE",
    "truncated": LITTLE + f"TRUNCATE {', '.join(sorted(GROWING | MANY))}; ANALYZE",
}  # fmt: skip


@pytest.fixture(scope="module", params=STATES)
def planned(request: pytest.FixtureRequest, postgres_server: PostgresServer, tables_to_copy: str) -> Iterator[str]:
    """A database whose tables are in some state: leave them so."""
    dsn = postgres_server.create_database(template=tables_to_copy)
    asyncio.run(_fill(dsn, STATES[request.param]))
    yield dsn
    postgres_server.drop_database(dsn)


async def _fill(dsn: str, fill: str) -> None:
    connection = await asyncpg.connect(dsn, server_settings={"search_path": "skep"})
    await connection.execute(fill)
    await connection.close()


@pytest.fixture
def dsn(planned: str, postgres_server: PostgresServer) -> Iterator[str]:
    """A copy, whose tables may be changed."""
    dsn = postgres_server.create_database(template=planned.rsplit("/", 1)[-1])
    yield dsn
    postgres_server.drop_database(dsn)


@pytest_asyncio.fixture(loop_scope="module")
async def planner(planned: str) -> AsyncIterator[Planner]:
    planner = await Planner.open(planned)
    yield planner
    await planner.connection.close()


def walks(scans: list[Scan]) -> list[Scan]:
    """Those that read all of a table that grows, or compare each row of one set with each of another."""
    return [
        scan
        for scan in scans
        if scan.kind == "FILTER" or (scan.table in GROWING | MANY and not scan.bound and scan.kind != "TIDSCAN")
    ]


async def test_no_statement_of_the_files_walks_a_table_that_grows(planner: Planner) -> None:
    seen: set[tuple[str, str, str]] = set()
    for file in FILES:
        for name, sql in load_statements("skep.store.postgres", file).items():
            if sql.startswith(UNPLANNED) or (file == "put_right" and name.startswith(ONCE)):
                continue
            found = {(file, name, scan.table): scan for scan in walks(await planner.plan(sql))}
            assert found.keys() <= WALKS.keys(), f"{file}: {name}: {found}"
            seen |= found.keys()
    assert WALKS.keys() <= seen, "an exception that is not needed any more"


@pytest.mark.parametrize(
    ("source", "index"),
    [
        ("range", "message_pkey"),
        ("range_of_partitions", "message_by_partition"),
        ("range_of_partition", "message_by_partition"),
    ],
)
async def test_ranges_of_the_log_are_read_by_an_index(planner: Planner, source: str, index: str) -> None:
    assert walks(await planner.plan(log.SQL["bounds"])) == []
    for sql in (
        log.shape_of(source), log.fitting(source), log.values_of(LOG_SCHEMA.names, source),
    ):  # fmt: skip
        scans = await planner.plan(sql)
        assert walks(scans) == []
        assert {scan.index for scan in scans if scan.table == "message"} == {index}


async def test_what_comes_first_of_a_range_is_read_by_an_index(planner: Planner) -> None:
    scans = await planner.plan(log.at_once(log.COMMON))

    assert walks(scans) == []
    assert {scan.index for scan in scans if scan.table == "message"} == {"message_pkey"}


async def test_watching_finds_its_queues_by_name(planner: Planner) -> None:
    assert walks(await planner.plan(WATCHING["watch"])) == []


HOT = {
    # The schedule is looked into for a duplicate of what is scheduled, and for nothing else.
    "push": {
        "message": {"message_pkey"}, "dedup": {"dedup_pkey"}, "operation": {"operation_by_partition"},
        "scheduled": {"scheduled_by_id"},
    },
    "push behind operations": {"message": {"message_pkey"}, "operation": {"operation_by_partition"}},
    "claim": {"operation": {"operation_by_turn", "operation_by_partition", "operation_pkey"}},
    "perform": {"message": {"message_pkey"}, "operation": {"operation_pkey", "operation_by_partition"}},
    "pop of anything": {
        "partition_lease": {"partition_lease_by_ready", "TIDSCAN"},
        "message": {"message_pkey", "message_by_partition"},
    },
    "pop of a lease that ran out": {
        "partition_lease": {"partition_lease_by_ready", "partition_lease_pkey", "TIDSCAN"},
        "message": {"message_pkey", "message_by_partition"},
    },
    "lease times": {"lease_history": {"lease_history_by_queue"}, "message": {"message_pkey"}},
    "pop of one partition": {
        "partition_lease": {"partition_lease_pkey", "TIDSCAN"},
        "message": {"message_pkey", "message_by_partition"},
    },
    "ack of a whole lease": {
        "partition_lease": {"partition_lease_pkey"},
        "message": {"message_pkey", "message_by_partition"},
    },
    "ack without names": {
        "partition_lease": {"partition_lease_pkey"},
        "message": {"message_pkey", "message_by_partition"},
    },
    "ack of an unordered lease": {"set_lease": {"set_lease_by_token", "set_lease_pkey"}, "message": {"message_pkey"}},
    "ack of a part": {"partition_lease": {"partition_lease_pkey"}, "message": {"message_pkey", "message_by_partition"}},
    "nack": {
        "forgotten": {"forgotten_by_seq"},
        "partition_lease": {"partition_lease_pkey"}, "message": {"message_pkey", "message_by_partition"},
        "operation": {"operation_by_partition"},
    },
    "reject": {
        "forgotten": {"forgotten_by_seq"},
        "partition_lease": {"partition_lease_pkey"}, "message": {"message_pkey", "message_by_partition"},
        "operation": {"operation_by_partition"},
    },
    "renew": {"partition_lease": {"partition_lease_pkey"}},
    "pop of an unordered queue": {
        "set_lease": {"set_lease_by_ready", "set_lease_pkey"},
        "message": {"message_pkey"},
    },
    "ack of a lease that was the last": {"partition_lease": {"partition_lease_pkey", "TIDSCAN"}, "message": {"message_pkey"}},
    "push to who waits": {
        "partition_lease": {"partition_lease_pkey", "partition_lease_by_ready"}, "message": {"message_pkey"},
        "operation": {"operation_by_partition"},
    },
    "repeated ack": {"partition_lease": {"partition_lease_pkey"}, "lease_history": {"lease_history_pkey"}},
    "settle of an unordered queue": {"forgotten": {"forgotten_by_seq"}, "set_lease": {"set_lease_by_token", "set_lease_pkey"}, "message": {"message_pkey"}},
    "renew of an unordered queue": {
        "partition_lease": {"partition_lease_pkey"},
        "set_lease": {"set_lease_by_token"},
    },
    "push of a few": {"message": {"message_pkey"}, "operation": {"operation_by_partition"}},
    "push with a receipt": {"message": {"message_pkey"}, "operation": {"operation_by_partition"}},
    "push with a receipt that exists": {
        "message": {"message_pkey"}, "receipt": {"receipt_pkey"}, "operation": {"operation_by_partition"},
    },
    "transact with effects": {
        "entity": {"entity_pkey", "TIDSCAN"}, "message": {"message_pkey"}, "operation": {"operation_by_partition"},
    },
    "read entities": {
        "entity": {"entity_pkey"}, "receipt": {"receipt_pkey"}, "entity_event": {"entity_event_pkey"},
    },
    "promote": {
        "scheduled": {"scheduled_pkey", "TIDSCAN"}, "message": {"message_pkey"}, "dedup": {"dedup_pkey"}, "operation": {"operation_by_partition"},
    },
}  # fmt: skip
"""By what each hot verb reaches the tables that grow, in its functions and beside them."""


async def test_no_verb_walks_a_table_that_grows_and_hot_ones_ride_their_index(
    dsn: str,
) -> None:
    store, planner = PostgresStore(dsn), await Planner.open(dsn)
    planner.serve(store)
    driver = Driver(store, ManualClock(), "tenant", checks=False)
    used: dict[str, list[Scan]] = {}

    async def watch(verb: str, call: Callable[[], Awaitable[object]]) -> None:
        await planner.connection.execute("DISCARD PLANS")
        planner.take()
        await call()
        used.setdefault(verb, []).extend(planner.take())

    await every_verb(driver, watch)
    await planner.connection.close()

    allowed = {"sweep": {"queue", "lease_history", "failed_attempt", "trace_event", "dead_letter_change"},
               "claim": {"operation"}, "look at operations": {"operation"}}  # fmt: skip
    for verb, scans in used.items():
        bad = {scan for scan in walks(scans) if scan.table not in allowed.get(verb, ())}
        assert not bad, f"{verb}: {bad}"
    for verb, expected in HOT.items():
        ways: dict[str, set[str]] = {}
        for scan in used[verb]:
            if scan.table in GROWING:
                ways.setdefault(scan.table, set()).add(scan.index or scan.kind)
        assert ways == expected, verb
    for verb in ("pop of anything", "pop of an unordered queue"):
        in_turn = [scan for scan in used[verb] if scan.index in ("partition_lease_by_ready", "set_lease_by_ready")]
        assert in_turn
        assert not any(scan.sorted for scan in in_turn), f"{verb}: reads all that is ready, to sort it"


async def push_to_who_waits(
    driver: Driver, watch: Callable[[str, Callable[[], Awaitable[object]]], Awaitable[None]]
) -> None:
    """A message that comes to a queue where nothing else is ready, and the ack of it."""
    await driver.create("quiet")
    await driver.pop("quiet")
    held: list[Delivery] = []

    async def push() -> None:
        batch = driver.batch(driver.message("1", queue="quiet"))
        _, [result] = await driver.store.push_and_pop([batch], [driver.request("quiet")], driver.now)
        assert result is not None
        held[:] = result.deliveries

    async def ack() -> None:
        await driver.push("2", queue="quiet")
        request = driver.request("quiet")
        _, [result] = await driver.store.settle_and_pop([one.settlement() for one in held], [request], driver.now)
        assert result is not None
        held[:] = result.deliveries

    await watch("push to who waits", push)
    await watch("ack for who waits", ack)
    await watch("ack of a lease that was the last", lambda: driver.ack(*held))


async def every_verb_of_scheduled(
    driver: Driver, watch: Callable[[str, Callable[[], Awaitable[object]]], Awaitable[None]]
) -> None:
    scheduled = driver.store.scheduled
    later = driver.later(90_000)
    (told,) = await driver.push("s", queue="s", deliver_at=later, transaction_id="s", trace_id=driver.mint.mint())
    assert told.trace_id is not None
    queue = ScheduledFilter(tenant=driver.tenant, queue="s")
    filters = [
        queue, ScheduledFilter(tenant=driver.tenant), msgspec.structs.replace(queue, ids=[told.id]),
        msgspec.structs.replace(queue, transaction_id="s"), msgspec.structs.replace(queue, trace_id=told.trace_id),
    ]  # fmt: skip
    for wanted in filters:
        await watch("list scheduled", lambda wanted=wanted: scheduled.page(wanted, None, 10, 10))  # type: ignore[misc]
        await watch("count scheduled", lambda wanted=wanted: scheduled.count(wanted, None))  # type: ignore[misc]
    await watch("mark scheduled", lambda: scheduled.mark(driver.key("s")))
    for what, at in ((Change.MOVE, later), (Change.RUN, None), (Change.CANCEL, None)):
        await watch(what, lambda what=what, at=at: scheduled.change(queue, what, at, None, 10, driver.now))  # type: ignore[misc]


async def every_verb(driver: Driver, watch: Callable[[str, Callable[[], Awaitable[object]]], Awaitable[None]]) -> None:
    """Call each verb in all the ways that reach other statements."""
    store = driver.store
    await watch("create", driver.create)
    for partition in "abcd":
        await watch("push", lambda p=partition: driver.push(*"123456", partition=p, transaction_id=p))  # type: ignore[misc]
    await watch("push of a few", lambda: driver.push("1", "2", "3", partition="a"))
    await watch("schedule", lambda: driver.push("x", deliver_at=driver.later(5), transaction_id="later"))
    await every_verb_of_scheduled(driver, watch)
    await watch("pop of anything", driver.pop)
    driver.clock.advance(10_000)
    await watch("pop of a lease that ran out", driver.pop)
    driver.clock.advance(10_000)
    held: list[Delivery] = []

    async def pop_partition() -> None:
        held[:] = await driver.pop(partition="a", batch=2)

    await watch("pop of one partition", pop_partition)
    await watch("renew", lambda: driver.renew(held[0]))
    for leases in (
        LeaseFilter(queue=driver.key(), partition="a"),
        LeaseFilter(queue=driver.key(), token=held[0].token),
    ):
        await watch("leased messages", lambda f=leases: store.leased_messages([f], driver.now))  # type: ignore[misc]
    await watch("nack", lambda: driver.nack(held[0]))
    await driver.seek(Start())
    held = await driver.pop(partition="a", batch=2)
    await watch("ack of a part", lambda: driver.ack(held[0]))
    await watch("ack of a whole lease", lambda: driver.ack(held[1]))
    await watch("repeated ack", lambda: driver.ack(held[1]))
    await driver.push("1", "2", "3", "4", partition="a")
    for seq in (0, 2**62):
        held = await driver.pop(partition="a", batch=2)
        await watch("ack without names", lambda h=held, s=seq: driver.ack_leases(h[0], through=s or h[0].seq))  # type: ignore[misc]
        await driver.ack_leases(*held)
    await push_to_who_waits(driver, watch)
    held = await driver.pop(partition="a", batch=1)
    await watch("reject", lambda: driver.reject(held[0]))
    await watch("replay", driver.replay)
    await driver.push("1", partition="d", transaction_id="forgotten", trace_id=driver.mint.mint())
    await driver.reject(await driver.pop_one(partition="d"))
    await watch("forget", lambda: driver.forget(*range(1, 9)))
    await watch("tombstones", lambda: driver.tombstones())
    source = ForgetFilter(queue=driver.key())
    await watch("letters of a source", lambda: store.letters_of_source(source, FIRST_LETTER))
    held = await driver.pop(partition="a", batch=1)
    await driver.reject(*held)
    await driver.pop("q.dead", batch=1)
    driver.clock.advance(10_000)
    await watch("purge", driver.purge)
    await watch("promote", driver.promote)
    await watch("transact", lambda: driver.transact([], [driver.message("x", transaction_id="y")]))
    once = driver.receipt("k")
    for verb in ("push with a receipt", "push with a receipt that exists"):
        batch = driver.batch(driver.message("x"), receipt=once)
        await watch(verb, lambda batch=batch: driver.push_batches(batch))  # type: ignore[misc]
    for version in (0, 1):
        effects, receipts = [driver.effect(version, 1, state=version)], [driver.receipt(f"t{version}")]
        await watch(
            "transact with effects",
            lambda e=effects, r=receipts: driver.transact([], [driver.message("x")], effects=e, receipts=r),  # type: ignore[misc]
        )
    await watch(
        "conflict", lambda: driver.transact([], [], effects=[driver.effect(0, 1, id_="2"), driver.effect(0, 1)])
    )
    await watch("conflict", lambda: driver.transact([], [], receipts=[driver.receipt("new"), once]))
    await watch(
        "quarantine", lambda: store.quarantine(driver.message("x"), driver.mint.mint(), "bad", None, driver.now)
    )
    await watch("read entities", lambda: driver.counters("1", "2"))
    await watch("read entities", lambda: driver.recorded("k"))
    await watch("read entities", lambda: store.records.list_entities(driver.tenant, "Counter"))
    await watch("read entities", lambda: store.records.entity_types(driver.tenant))
    await watch("endpoints", lambda: store.records.endpoints(driver.tenant))
    await watch("seek", lambda: driver.seek(Start()))
    await watch("expire", driver.expire)

    await driver.create("u", ordering=Ordering.UNORDERED, max_age_seconds=100_000)
    await driver.push("1", "2", "3", queue="u")

    async def pop_unordered() -> None:
        held[:] = await driver.pop("u", batch=2)

    await watch("pop of an unordered queue", pop_unordered)
    await watch("renew of an unordered queue", lambda: driver.renew(held[0]))
    nack = driver.settlement(held[0], Outcome.NACK, retry=Retry.NOW)
    await watch("settle of an unordered queue", lambda: driver.settle(nack, driver.settlement(held[1])))
    held = await driver.pop("u", batch=2)
    await watch("ack of an unordered lease", lambda: driver.ack_leases(*held))
    await watch("expire", lambda: driver.expire("u"))

    await driver.create("r", retention_seconds=1, completed_retention_seconds=1, retention_ignores_groups=True)
    await driver.push("1", "2", "3", queue="r")
    await driver.pop("r", batch=1)
    driver.clock.advance(1000)
    await watch("retain", lambda: driver.retain("r"))
    await driver.update("r", retention_requires_archive=True)
    await watch("retain for the archive", lambda: driver.retain("r"))
    await watch("stats of an archive", lambda: driver.queue_stats("r"))
    await watch("report", lambda: store.report_progress(driver.key("r"), "lake", Seq(1), driver.now, archived=True))
    await driver.pop(batch=1)
    for name in ("r", "u"):
        (stored,) = await driver.push("1", queue=name)
        await driver.pop(name)
        await watch("delete message", lambda s=stored, n=name: driver.delete_message(s.seq, n))  # type: ignore[misc]
    for scope in ClearScope:
        await watch("clear", lambda scope=scope: driver.clear(scope))  # type: ignore[misc]
    await operation_verbs(driver, watch)
    await watch("sample", lambda: store.sample(driver.now))
    await watch("stats", driver.queue_stats)
    await watch("stats", lambda: store.partition_stats(driver.key(), "__QUEUE_MODE__", driver.now))
    await watch("stats", lambda: store.leases(driver.tenant, driver.now))
    group = {"group": "__QUEUE_MODE__", "state": MessageState.PENDING}
    trace = driver.mint.mint()
    for fields in ({}, group, {"partition": "a"}, {"transaction_id": "a"}, {"trace_id": trace}):
        for descending in (False, True):
            wanted = MessageFilter(queue=driver.key(), descending=descending, **fields)
            await watch("browse", lambda wanted=wanted: store.messages(wanted, driver.now))  # type: ignore[misc]
    await watch("trace", lambda: store.trace(driver.tenant, trace))
    await watch("trace", lambda: store.with_transaction_id(driver.tenant, "t1"))
    await watch("past", lambda: store.past(driver.tenant, [driver.key().name], Instant(0)))
    await watch("past", lambda: store.deliveries([Journey(driver.key(), "a", Seq(1), driver.now)]))
    await watch("lease times", lambda: store.lease_times(driver.key(), Instant(0)))
    await watch("past", lambda: store.failures([(driver.key(), Seq(1))]))
    await watch("history", lambda: store.lease_history(driver.key()))
    await watch("history", lambda: store.lease_history(driver.key(), since=driver.now))
    await watch("history", lambda: store.retention_history(driver.key()))
    await watch("list", lambda: store.list_queues(driver.tenant))
    await watch("list", store.tenants)
    await watch("delete", lambda: driver.delete("u"))
    await watch("delete", driver.delete_group)
    await watch("update", lambda: driver.update(ordering=Ordering.FIFO))
    await watch("sweep", lambda: store.sweep(driver.now, 100))


async def operation_verbs(
    driver: Driver, watch: Callable[[str, Callable[[], Awaitable[object]]], Awaitable[None]]
) -> None:
    store = driver.store
    await driver.create("o")
    for partition in "ab":
        batch = driver.batch(driver.message("1", "o", partition=partition))
        request = NewOperations(OperationKind.PUSH, driver.mint.mint_many(2), push=batch)
        await watch("enqueue", lambda request=request: store.enqueue([request], driver.now))  # type: ignore[misc]
    for count in (1, 100):
        later = driver.batch(*[driver.message("2", "o", partition="a")] * count)
        await watch("push behind operations", lambda later=later: store.push([later], driver.now))  # type: ignore[misc]
    token, claimed = driver.token(), list[Claimed]()

    async def claim() -> None:
        claimed[:] = (await store.claim_operations("w", token, ClaimLimits(operations=2), driver.now)).operations

    await watch("claim", claim)
    back = [GivenBack(claimed[0].position, driver.now, "no")]
    await watch("give back", lambda: store.give_back(token, back, driver.now))
    await watch("perform", lambda: store.perform(token, claimed[1:], driver.now))
    await watch("cancel", lambda: store.cancel_operation(driver.tenant, claimed[0].id, driver.now))
    for status in (None, OperationStatus.PENDING):
        wanted = OperationFilter(tenant=driver.tenant, status=status)
        await watch("look at operations", lambda wanted=wanted: store.list_operations(wanted, None, 10))  # type: ignore[misc]
    await watch("look at operations", lambda: store.waiting_operations(driver.now, 100))
    await watch("look at operations", lambda: store.operation_figures(driver.tenant, 100))
    await watch("operation", lambda: store.operation(driver.tenant, claimed[0].id))
    await watch("sweep operations", lambda: store.sweep_operations(driver.now, driver.now, 10))
    await watch("delete with operations", lambda: driver.delete("o"))
