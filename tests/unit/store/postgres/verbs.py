"""The calls that race each other: each verb of the store that locks rows, made ready on a queue with messages, and the locks it waits for.

A new verb gets a function here and a line of the same name in the table of `docs/log.md`: `test_lock_order.py` holds the line,
`test_pairs.py` runs the call against others.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pyarrow as pa

from skep.arrow.log import NewRows
from skep.arrow.staged import plain_chunk
from skep.clock import Instant
from skep.errors import Code
from skep.model import FROM_BEGINNING, ClearScope, Ordering, Outcome, QueueChanges, QueueSettings, Retry, Seq, Token
from skep.model.forgetting import SeqRange
from skep.model.operation import Claimed, GivenBack
from skep.model.record import Unfit
from skep.model.scheduled import Change, ScheduledFilter
from skep.model.staging import Attempt, EpochKey, StagedChunk
from skep.model.transaction import Transaction
from skep.store.postgres import PostgresStore, chores
from skep.store.postgres.retain import _retain
from tests.contract.driver import Driver
from tests.contract.queueing import Ops
from tests.unit.store.postgres.lock_table import Line, read_table

Verb = Callable[[Driver], Awaitable[Callable[[], Awaitable[Any]]]]


async def push(driver: Driver) -> Callable[[], Awaitable[Any]]:
    batch = driver.batch(driver.message("x", transaction_id="t"))
    return lambda: driver.store.push([batch], driver.now)


async def push_plain(driver: Driver) -> Callable[[], Awaitable[Any]]:
    batch = driver.batch(driver.message("x"))
    return lambda: driver.store.push([batch], driver.now)


async def push_and_pop(driver: Driver) -> Callable[[], Awaitable[Any]]:
    await driver.ack(*await driver.pop())
    batch = driver.batch(driver.message("x"))
    return lambda: driver.store.push_and_pop([batch], [driver.request()], driver.now)


async def settle_and_pop(driver: Driver) -> Callable[[], Awaitable[Any]]:
    held = await driver.pop_one()
    await driver.push("next")
    return lambda: driver.store.settle_and_pop([held.settlement()], [driver.request()], driver.now)


async def push_to_another_that_is_new(driver: Driver) -> Callable[[], Awaitable[Any]]:
    batch = driver.batch(driver.message("x"), driver.message("y", "new"))
    return lambda: driver.store.push([batch], driver.now)


async def push_to_several(driver: Driver) -> Callable[[], Awaitable[Any]]:
    await driver.create("a")
    batch = driver.batch(driver.message("x", "a"), driver.message("y"))
    return lambda: driver.store.push([batch], driver.now)


async def push_to_a_new_queue(driver: Driver) -> Callable[[], Awaitable[Any]]:
    batch = driver.batch(driver.message("x", "new"))
    return lambda: driver.store.push([batch], driver.now)


async def push_with_a_receipt(driver: Driver) -> Callable[[], Awaitable[Any]]:
    batch = driver.batch(driver.message("x"), receipt=driver.receipt("k"))
    return lambda: driver.store.push([batch], driver.now)


async def push_rows(driver: Driver) -> Callable[[], Awaitable[Any]]:
    column = pa.array([b"x", b"y"], pa.large_binary())
    rows = NewRows(pa.array([b"Default", b"Default"], pa.large_binary()), column, driver.mint.mint_range(2))
    return lambda: driver.store.push_rows(driver.key(), rows, driver.now)


def chunk(driver: Driver) -> StagedChunk:
    """One message of the epoch that `stage`, `publish` and `abort` share."""
    column = pa.array([b"Default"], pa.large_binary())
    return StagedChunk(
        epoch=EpochKey("query", 7, driver.tenant), partition=0, attempt=0, number=0, messages=1, queues=["q"],
        data=plain_chunk("q", column, column), expires_at=driver.later(86_400),
    )  # fmt: skip


async def stage(driver: Driver) -> Callable[[], Awaitable[Any]]:
    return lambda: driver.store.stage(chunk(driver), driver.now)


async def publish(driver: Driver) -> Callable[[], Awaitable[Any]]:
    await driver.store.stage(chunk(driver), driver.now)
    ids, until = driver.mint.mint_range(1), driver.later(86_400)
    return lambda: driver.store.publish(chunk(driver).epoch, [Attempt(0, 0, 1)], ids, until, driver.now)


async def abort(driver: Driver) -> Callable[[], Awaitable[Any]]:
    await driver.store.stage(chunk(driver), driver.now)
    return lambda: driver.store.abort(chunk(driver).epoch)


async def quarantine(driver: Driver) -> Callable[[], Awaitable[Any]]:
    message, id_ = driver.message("bad", transaction_id="t"), driver.mint.mint()
    return lambda: driver.store.quarantine(message, id_, "bad", driver.receipt("k"), driver.now)


async def bury_unfit(driver: Driver) -> Callable[[], Awaitable[Any]]:
    receipt = driver.receipt("k", scope="unfit")
    return lambda: driver.store.bury_unfit(driver.key(), [Unfit(3, "bad")], receipt.key, receipt.expires_at, driver.now)


CLAIMED: dict[str, tuple[Token, list[Claimed]]] = {}
"""The latest claim of a tenant: of two calls, the second finds everything claimed."""


async def claim(driver: Driver) -> tuple[Token, list[Claimed]]:
    """Claim the tenant's operations, or have what was claimed."""
    while driver.tenant not in CLAIMED:
        token, found = await Ops(driver).claim()
        if mine := [one for one in found if one.queue.tenant == driver.tenant]:
            CLAIMED[driver.tenant] = token, mine
        assert found
    return CLAIMED[driver.tenant]


async def enqueue(driver: Driver) -> Callable[[], Awaitable[Any]]:
    return lambda: Ops(driver).push("o", transaction_id="o")


async def claim_operations(driver: Driver) -> Callable[[], Awaitable[Any]]:
    await Ops(driver).push("o")
    return lambda: Ops(driver).claim_once()


async def perform(driver: Driver) -> Callable[[], Awaitable[Any]]:
    await Ops(driver).push("o")
    token, claimed = await claim(driver)
    return lambda: Ops(driver).perform(token, claimed)


async def perform_an_ack(driver: Driver) -> Callable[[], Awaitable[Any]]:
    await Ops(driver).settle(driver.settlement(await driver.pop_one()))
    token, claimed = await claim(driver)
    return lambda: Ops(driver).perform(token, claimed)


async def give_back(driver: Driver) -> Callable[[], Awaitable[Any]]:
    await Ops(driver).push("o")
    token, claimed = await claim(driver)
    back = [GivenBack(one.position, driver.later(0)) for one in claimed]
    return lambda: driver.store.give_back(token, back, driver.now)


async def give_back_and_bury(driver: Driver) -> Callable[[], Awaitable[Any]]:
    await Ops(driver).push("o")
    token, claimed = await claim(driver)
    back = [GivenBack(one.position, None, error="bad", code=Code.MESSAGE_INVALID) for one in claimed]
    return lambda: driver.store.give_back(token, back, driver.now)


async def cancel_operation(driver: Driver) -> Callable[[], Awaitable[Any]]:
    kept = await Ops(driver).push("o")
    return lambda: driver.store.cancel_operation(driver.tenant, kept.id, driver.now)


async def sweep_operations(driver: Driver) -> Callable[[], Awaitable[Any]]:
    await Ops(driver).push("o")
    return lambda: driver.store.sweep_operations(driver.later(60), driver.later(60), 100)


async def watch(driver: Driver) -> Callable[[], Awaitable[Any]]:
    return lambda: driver.store.watch([driver.key()], driver.later(60))


async def pop(driver: Driver) -> Callable[[], Awaitable[Any]]:
    return lambda: driver.store.pop([driver.request()], driver.now)


async def pop_some(driver: Driver) -> Callable[[], Awaitable[Any]]:
    """What an unordered queue has left gets a row of its own."""
    return lambda: driver.store.pop([driver.request(batch=1)], driver.now)


async def pop_and_bury(driver: Driver) -> Callable[[], Awaitable[Any]]:
    driver.clock.advance(1_000)
    return pop_later(driver)


async def count_and_bury(driver: Driver) -> Callable[[], Awaitable[Any]]:
    """Two pops: for the first a lease has run out, for the second messages are too old."""
    driver.clock.advance(1_000)
    await driver.push("young", partition="another")
    await driver.pop(partition="another", lease_seconds=1)
    driver.clock.advance(2)
    requests = [driver.request(partition="another"), driver.request()]
    return lambda: driver.store.pop(requests, driver.now)


async def pop_for_a_new_group(driver: Driver) -> Callable[[], Awaitable[Any]]:
    return lambda: driver.store.pop([driver.request(group="new")], driver.now)


async def auto_ack(driver: Driver) -> Callable[[], Awaitable[Any]]:
    return lambda: driver.store.pop([driver.request(auto_ack=True)], driver.now)


async def auto_ack_and_bury_for_a_new_group(driver: Driver) -> Callable[[], Awaitable[Any]]:
    driver.clock.advance(1_000)
    return lambda: driver.store.pop([driver.request(group="new", auto_ack=True)], driver.now)


def pop_later(driver: Driver) -> Callable[[], Awaitable[Any]]:
    return lambda: driver.store.pop([driver.request()], driver.now)


async def ack(driver: Driver) -> Callable[[], Awaitable[Any]]:
    settlement = driver.settlement(await driver.pop_one())
    return lambda: driver.store.settle([settlement], driver.now)


async def nack(driver: Driver) -> Callable[[], Awaitable[Any]]:
    settlement = driver.settlement(await driver.pop_one(), Outcome.NACK, retry=Retry.NOW)
    return lambda: driver.store.settle([settlement], driver.now)


async def nack_some(driver: Driver) -> Callable[[], Awaitable[Any]]:
    """In an unordered queue the message gets a row of its own."""
    first, *_ = await driver.pop(batch=2)
    settlement = driver.settlement(first, Outcome.NACK, retry=Retry.NOW)
    return lambda: driver.store.settle([settlement], driver.now)


async def give_up(driver: Driver) -> Callable[[], Awaitable[Any]]:
    first, *_ = await driver.pop(batch=2)
    settlement = driver.settlement(first, Outcome.RELEASE)
    return lambda: driver.store.settle([settlement], driver.now)


async def reject(driver: Driver) -> Callable[[], Awaitable[Any]]:
    settlement = driver.settlement(await driver.pop_one(), Outcome.REJECT)
    return lambda: driver.store.settle([settlement], driver.now)


async def reject_into_a_new_queue(driver: Driver) -> Callable[[], Awaitable[Any]]:
    await driver.create("a")
    await driver.push("1", queue="a")
    settlement = driver.settlement(await driver.pop_one("a"), Outcome.REJECT)
    return lambda: driver.store.settle([settlement], driver.now)


async def reject_in_two_queues(driver: Driver) -> Callable[[], Awaitable[Any]]:
    await driver.create("a", dead_letter_queue="q.dead")
    await driver.push("1", queue="a")
    held = [await driver.pop_one("a"), await driver.pop_one()]
    settlements = [driver.settlement(delivery, Outcome.REJECT) for delivery in held]
    return lambda: driver.store.settle(settlements, driver.now)


async def ack_in_one_queue_and_reject_in_another(driver: Driver) -> Callable[[], Awaitable[Any]]:
    await driver.create("a")
    await driver.push("1", queue="a")
    acked = driver.settlement(await driver.pop_one("a"))
    rejected = driver.settlement(await driver.pop_one(), Outcome.REJECT)
    return lambda: driver.store.settle([acked, rejected], driver.now)


async def renew(driver: Driver) -> Callable[[], Awaitable[Any]]:
    delivery = await driver.pop_one()
    return lambda: driver.renew(delivery)


async def transact(driver: Driver) -> Callable[[], Awaitable[Any]]:
    one = Transaction([driver.settlement(await driver.pop_one())], driver.batch(driver.message("out")))
    return lambda: driver.store.transact([one], driver.now)


async def transact_together(driver: Driver) -> Callable[[], Awaitable[Any]]:
    several = [
        Transaction([driver.settlement(delivery)], driver.batch(driver.message("out")))
        for delivery in await driver.pop(batch=2)
    ]
    several.append(Transaction([], driver.batch(driver.message("out"))))
    return lambda: driver.store.transact(several, driver.now)


async def transact_effects(driver: Driver) -> Callable[[], Awaitable[Any]]:
    """Its receipt and its entity are wanted by others, too."""
    settlement = driver.settlement(await driver.pop_one())
    one = Transaction([settlement], driver.batch(driver.message("out")), [driver.effect(0, 1)], [driver.receipt("k")])
    return lambda: driver.store.transact([one], driver.now)


async def transact_a_rejection(driver: Driver) -> Callable[[], Awaitable[Any]]:
    settlement = driver.settlement(await driver.pop_one(), Outcome.REJECT)
    one = Transaction([settlement], driver.batch(driver.message("out")))
    return lambda: driver.store.transact([one], driver.now)


async def seek(driver: Driver) -> Callable[[], Awaitable[Any]]:
    return lambda: driver.store.seek(driver.key(), driver.request().group, FROM_BEGINNING, driver.now)


async def seek_of_a_new_group(driver: Driver) -> Callable[[], Awaitable[Any]]:
    return lambda: driver.store.seek(driver.key(), "new", FROM_BEGINNING, driver.now)


async def delete_group(driver: Driver) -> Callable[[], Awaitable[Any]]:
    return lambda: driver.store.delete_group(driver.key(), driver.request().group, driver.now)


async def release_lease(driver: Driver) -> Callable[[], Awaitable[Any]]:
    held = await driver.pop_one()
    return lambda: driver.store.release_lease(held.queue, held.group, held.partition, held.token, driver.now)


async def end_leases(driver: Driver) -> Callable[[], Awaitable[Any]]:
    await driver.pop(batch=1)
    return lambda: driver.store.end_leases(driver.key(), driver.request().group, "Default", driver.now)


async def report_progress(driver: Driver) -> Callable[[], Awaitable[Any]]:
    return lambda: driver.store.report_progress(driver.key(), "external", Seq(1), driver.now)


async def report_progress_of_logs(driver: Driver) -> Callable[[], Awaitable[Any]]:
    await driver.push("in another queue", queue="q.dead")
    for queue in ("q", "q.dead"):
        await driver.store.report_progress(driver.key(queue), "external", Seq(0), driver.now)
    seqs = {"q.dead": Seq(1), "q": Seq(1)}
    return lambda: driver.store.report_progress_of_logs(driver.key().tenant, "external", seqs, driver.now)


async def clear(driver: Driver) -> Callable[[], Awaitable[Any]]:
    return lambda: driver.store.clear(driver.key(), ClearScope.ALL, driver.now)


async def clear_scheduled(driver: Driver) -> Callable[[], Awaitable[Any]]:
    await waiting(driver)
    return lambda: driver.store.clear(driver.key(), ClearScope.SCHEDULED, driver.now)


async def purge(driver: Driver) -> Callable[[], Awaitable[Any]]:
    await driver.reject(await driver.pop_one())
    await driver.pop("q.dead")
    return lambda: driver.store.purge(driver.dead_filter(), 10, driver.now)


async def replay(driver: Driver) -> Callable[[], Awaitable[Any]]:
    await driver.reject(await driver.pop_one())
    await driver.pop("q.dead")
    ids = driver.mint.mint_many(10)
    return lambda: driver.store.replay(driver.dead_filter(), ids, Seq(2**60), driver.now)


async def delete_message(driver: Driver) -> Callable[[], Awaitable[Any]]:
    """One that two groups have not settled, and one of them holds."""
    await driver.seek(FROM_BEGINNING, group="another")
    (held,) = await driver.pop(batch=1)
    return lambda: driver.store.delete_message(driver.key(), held.seq, None, driver.now)


async def forget(driver: Driver) -> Callable[[], Awaitable[Any]]:
    """A message that one of two groups has given up and the other holds, and one with a transaction id; somebody holds the letter."""
    await driver.push("5", transaction_id="t")
    await driver.seek(FROM_BEGINNING, group="another")
    await driver.reject(await driver.pop_one())
    await driver.pop(group="another", batch=1)
    await driver.pop("q.dead")
    ranges = [SeqRange(1, 2), SeqRange(5, 5)]
    return lambda: driver.store.forget(driver.key(), None, ranges, Seq(0), 10, driver.now)


async def expire(driver: Driver) -> Callable[[], Awaitable[Any]]:
    await driver.pop(group="another")
    driver.clock.advance(1_000)
    return lambda: driver.store.expire(driver.key(), driver.now, 100)


async def retain(driver: Driver) -> Callable[[], Awaitable[Any]]:
    await driver.update(retention_seconds=1, retention_ignores_groups=True)
    driver.clock.advance(1_000)
    return lambda: driver.store.retain(driver.key(), driver.now, 100)


async def retain_settled(driver: Driver) -> Callable[[], Awaitable[Any]]:
    """Without the look for idle groups, which is a transaction of its own and reads the groups before."""
    await driver.update(retention_seconds=1)
    driver.clock.advance(1_000)
    store = driver.store
    assert isinstance(store, PostgresStore)
    return lambda: store.pool.transaction(_retain, driver.key(), driver.now, 100, 0)


async def waiting(driver: Driver) -> ScheduledFilter:
    """A filter that some scheduled messages fit."""
    await driver.push("5", "6", deliver_at=driver.later(10), transaction_id="t")
    return ScheduledFilter(tenant=driver.tenant, queue="q")


async def promote(driver: Driver) -> Callable[[], Awaitable[Any]]:
    await waiting(driver)
    driver.clock.advance(20)
    return lambda: driver.store.promote(driver.key(), driver.now, 100)


async def count_scheduled(driver: Driver) -> Callable[[], Awaitable[Any]]:
    await waiting(driver)
    return lambda: driver.store.scheduled.mark(driver.key())


async def cancel_scheduled(driver: Driver) -> Callable[[], Awaitable[Any]]:
    wanted = await waiting(driver)
    return lambda: driver.store.scheduled.change(wanted, Change.CANCEL, None, None, 10, driver.now)


async def forget_scheduled(driver: Driver) -> Callable[[], Awaitable[Any]]:
    wanted = await waiting(driver)
    return lambda: driver.store.scheduled.change(wanted, Change.FORGET, None, None, 10, driver.now)


async def move_scheduled(driver: Driver) -> Callable[[], Awaitable[Any]]:
    wanted = await waiting(driver)
    return lambda: driver.store.scheduled.change(wanted, Change.MOVE, driver.later(99), None, 10, driver.now)


async def run_scheduled(driver: Driver) -> Callable[[], Awaitable[Any]]:
    wanted = await waiting(driver)
    return lambda: driver.store.scheduled.change(wanted, Change.RUN, None, None, 10, driver.now)


async def put_right(driver: Driver) -> Callable[[], Awaitable[Any]]:
    """The clock is an hour behind what it was."""
    await driver.store.put_right(driver.later(3600), 100)
    return lambda: driver.store.put_right(driver.now, 100)


async def sweep(driver: Driver) -> Callable[[], Awaitable[Any]]:
    await driver.delete()
    return lambda: driver.store.sweep(driver.now, 100)


async def create_queue(driver: Driver) -> Callable[[], Awaitable[Any]]:
    return lambda: driver.store.create_queue(driver.key("new"), QueueSettings(), driver.now)


async def change_of_settings(driver: Driver) -> Callable[[], Awaitable[Any]]:
    return lambda: driver.store.update_queue(driver.key(), QueueChanges(max_attempts=9), driver.now)


async def keep_sqs_note(driver: Driver) -> Callable[[], Awaitable[Any]]:
    return lambda: driver.store.keep_sqs_note(driver.key(), b"{}", None, driver.now)


async def change_to_archive_first(driver: Driver) -> Callable[[], Awaitable[Any]]:
    """Retention that requires an archive from now on."""
    return lambda: driver.store.update_queue(driver.key(), QueueChanges(retention_requires_archive=True), driver.now)


async def change_of_ordering(driver: Driver) -> Callable[[], Awaitable[Any]]:
    await driver.clear(ClearScope.ALL)
    changes = QueueChanges(ordering=Ordering.FIFO)
    return lambda: driver.store.update_queue(driver.key(), changes, driver.now)


async def delete_queue(driver: Driver) -> Callable[[], Awaitable[Any]]:
    return lambda: driver.store.delete_queue(driver.key(), driver.now)


async def look(driver: Driver) -> Callable[[], Awaitable[Any]]:
    return lambda: driver.store.queue_stats(driver.key(), driver.now)


async def look_at_leases(driver: Driver) -> Callable[[], Awaitable[Any]]:
    return lambda: driver.store.leases(driver.tenant, driver.now)


async def sample(driver: Driver) -> Callable[[], Awaitable[Any]]:
    return lambda: driver.store.sample(Instant(driver.now + 60_000_000))


async def compact(driver: Driver) -> Callable[[], Awaitable[Any]]:
    store = driver.store
    assert isinstance(store, PostgresStore)
    return lambda: store.pool.transaction(chores.compact)


VERBS: dict[Verb, Line] = {globals()[line.call]: line for line in read_table()}
"""The calls, each with its line of the table of locks."""
