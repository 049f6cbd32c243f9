"""What is removed from a log, by purge, replay or age, leaves every account at once: depth, lag, max_depth (I12)."""

from __future__ import annotations

from typing import Any

import pytest

from skep.errors import Code
from skep.model import FROM_BEGINNING, FROM_NOW, ClearScope, Ordering, PushOutcome, Seq, Start, StartMode
from tests.contract.driver import Driver, payloads

BOTH = pytest.mark.parametrize("ordering", [Ordering.PER_KEY, Ordering.UNORDERED])
VERBS = pytest.mark.parametrize("verb", ["purge", "replay"])


async def bury(driver: Driver, *messages: str, partition: str = "p") -> None:
    await driver.push(*messages, partition=partition)
    await driver.reject(*await driver.pop())


async def make(driver: Driver, ordering: Ordering = Ordering.PER_KEY, **settings: Any) -> None:
    """Queue q, whose dead letters go to a queue with these settings."""
    await driver.create("grave", ordering=ordering, **settings)
    await driver.create(dead_letter_queue="grave")


async def lag(driver: Driver, group: str) -> tuple[int, int, int, int]:
    stats = await driver.stats("grave", group)
    assert stats.pushed - stats.completed - stats.dead - stats.expired == stats.lag_messages
    return stats.pushed, stats.pending, stats.in_flight, stats.expired


async def depth(driver: Driver) -> int:
    return (await driver.queue_stats("grave")).depth


async def quarantine(driver: Driver) -> PushOutcome:
    return await driver.store.quarantine(driver.message("bad"), driver.mint.mint(), "no", None, driver.now)


@VERBS
@BOTH
async def test_I12_without_groups_a_dead_letter_queue_is_as_deep_as_it_has_letters(
    driver: Driver, ordering: Ordering, verb: str
) -> None:
    await make(driver, ordering)
    await bury(driver, *"abcde")

    await getattr(driver, verb)("grave", seqs=[Seq(2), Seq(5)])
    assert await depth(driver) == 3

    await getattr(driver, verb)("grave")
    assert await depth(driver) == 0
    assert (await driver.queue_stats("grave")).oldest_age_seconds == 0


@VERBS
@BOTH
async def test_I12_a_group_that_never_popped_has_no_lag_for_letters_that_are_gone(
    driver: Driver, ordering: Ordering, verb: str
) -> None:
    await make(driver, ordering)
    await driver.seek(FROM_BEGINNING, "grave", "idle")
    await bury(driver, *"abcd")

    await getattr(driver, verb)("grave", seqs=[Seq(1), Seq(3)])

    assert await lag(driver, "idle") == (4, 2, 0, 2)
    assert await depth(driver) == 2
    assert payloads(await driver.pop("grave", group="idle")) == ["b", "d"]
    assert await lag(driver, "idle") == (4, 0, 2, 2)


@VERBS
@BOTH
async def test_I12_groups_before_amid_and_behind_what_is_gone_have_their_accounts_right_at_once(
    driver: Driver, ordering: Ordering, verb: str
) -> None:
    await make(driver, ordering)
    await driver.seek(FROM_BEGINNING, "grave", "before")
    await bury(driver, *"abc")
    await driver.ack(*await driver.pop("grave", group="amid", batch=1))
    await bury(driver, *"def")
    await driver.ack(*await driver.pop("grave", group="behind"))

    await getattr(driver, verb)("grave", seqs=[Seq(2), Seq(4), Seq(5)])

    assert await lag(driver, "before") == (6, 3, 0, 3)
    assert await lag(driver, "amid") == (6, 2, 0, 3)
    assert await lag(driver, "behind") == (6, 0, 0, 0)
    assert await depth(driver) == 3
    assert payloads(await driver.pop("grave", group="amid")) == ["c", "f"]
    assert payloads(await driver.pop("grave", group="before")) == ["a", "c", "f"]
    assert await lag(driver, "amid") == (6, 0, 2, 3)
    assert await lag(driver, "before") == (6, 0, 3, 3)


@VERBS
@BOTH
async def test_I12_a_group_made_later_never_had_what_was_gone_before(
    driver: Driver, ordering: Ordering, verb: str
) -> None:
    await make(driver, ordering)
    await bury(driver, *"abcde")
    await getattr(driver, verb)("grave", seqs=[Seq(1), Seq(2), Seq(4)])

    starts = {"all": FROM_BEGINNING, "amid": Start(StartMode.SEQ, 3), "late": Start(StartMode.SEQ, 4), "new": FROM_NOW}
    for name, start in starts.items():
        await driver.seek(start, "grave", name)

    assert await lag(driver, "all") == (2, 2, 0, 0)
    assert await lag(driver, "amid") == (2, 2, 0, 0)
    assert await lag(driver, "late") == (1, 1, 0, 0)
    assert await lag(driver, "new") == (0, 0, 0, 0)
    assert payloads(await driver.pop("grave", group="all")) == ["c", "e"]
    assert payloads(await driver.pop("grave", group="late")) == ["e"]
    await driver.seek(Start(StartMode.SEQ, 5), "grave", "all")
    assert await lag(driver, "all") == (1, 1, 0, 0)


@VERBS
@BOTH
async def test_a_full_dead_letter_queue_takes_webhooks_again_once_letters_are_gone(
    driver: Driver, ordering: Ordering, verb: str
) -> None:
    await make(driver, ordering, max_depth=2)
    await driver.seek(FROM_BEGINNING, "grave", "idle")
    await bury(driver, "a", "b")
    (refused,) = (await quarantine(driver)).results
    assert refused.code is Code.QUEUE_FULL

    await getattr(driver, verb)("grave", limit=1)

    (taken,) = (await quarantine(driver)).results
    assert taken.code is None
    (refused,) = (await quarantine(driver)).results
    assert refused.code is Code.QUEUE_FULL
    (refused,) = await driver.push("x", queue="grave")
    assert refused.code is Code.QUEUE_FULL
    await driver.delete_group("grave", "idle")
    assert await depth(driver) == 2


@VERBS
@BOTH
async def test_a_dead_letter_queue_whose_letters_are_gone_may_change_its_ordering(
    driver: Driver, ordering: Ordering, verb: str
) -> None:
    await make(driver, ordering)
    await driver.seek(FROM_BEGINNING, "grave", "idle")
    await bury(driver, "a", "b")
    await getattr(driver, verb)("grave")

    await driver.update("grave", ordering=Ordering.FIFO)

    await driver.push("c", queue="grave")
    assert payloads(await driver.pop("grave", group="idle")) == ["c"]
    assert await lag(driver, "idle") == (3, 0, 1, 2)


@VERBS
async def test_I12_an_external_group_has_no_lag_for_letters_that_are_gone(driver: Driver, verb: str) -> None:
    await make(driver)
    await bury(driver, *"abcde")
    await driver.store.report_progress(driver.key("grave"), "spark", Seq(1), driver.now)

    await getattr(driver, verb)("grave", seqs=[Seq(1), Seq(3), Seq(4)])

    assert await lag(driver, "spark") == (4, 2, 0, 2)
    assert await depth(driver) == 2
    await driver.store.report_progress(driver.key("grave"), "spark", Seq(3), driver.now)
    assert await lag(driver, "spark") == (4, 1, 0, 2)
    stats = await driver.store.report_progress(driver.key("grave"), "spark", Seq(5), driver.now)
    assert (stats.completed, stats.expired, stats.lag_messages) == (2, 2, 0)


@BOTH
async def test_I12_a_clear_counts_what_was_gone_once(driver: Driver, ordering: Ordering) -> None:
    await make(driver, ordering)
    await bury(driver, *"abcd")
    await driver.purge("grave", limit=1)
    assert (await driver.clear(ClearScope.PENDING, "grave")).pending == 3
    assert await depth(driver) == 0

    await bury(driver, *"efgh")
    await driver.seek(FROM_BEGINNING, "grave", "idle")
    await driver.purge("grave", seqs=[Seq(6)])
    assert (await driver.clear(ClearScope.PENDING, "grave")).pending == 3
    assert await lag(driver, "idle") == (4, 0, 0, 4)
    assert await depth(driver) == 0


@BOTH
async def test_lag_is_that_of_the_oldest_letter_left(driver: Driver, ordering: Ordering) -> None:
    await make(driver, ordering)
    await bury(driver, "old", "gone")
    driver.clock.advance(60)
    await bury(driver, "young")
    await driver.ack(*await driver.pop("grave", batch=1))

    await driver.purge("grave", seqs=[Seq(2)])

    stats = await driver.stats("grave")
    assert (stats.progress_seq, stats.oldest_at, stats.lag_seconds) == (2, driver.now, 0)


@pytest.mark.parametrize("outcome", ["nack", "run out"])
@VERBS
@BOTH
async def test_I12_a_letter_that_went_while_it_was_leased_is_gone_when_its_lease_ends(
    driver: Driver, ordering: Ordering, verb: str, outcome: str
) -> None:
    await make(driver, ordering)
    await bury(driver, "a", "b")
    first, second = await driver.pop("grave", lease_seconds=10)
    await getattr(driver, verb)("grave")
    assert await lag(driver, "__QUEUE_MODE__") == (2, 0, 2, 0)

    if outcome == "nack":
        await driver.nack(first, second)
    else:
        driver.clock.advance(10)
        await driver.expire("grave")

    assert await lag(driver, "__QUEUE_MODE__") == (2, 0, 0, 2)
    assert await depth(driver) == 0


@BOTH
async def test_I12_leases_that_ran_out_and_keep_their_letters_do_not_hide_one_that_lost_them(
    driver: Driver, ordering: Ordering
) -> None:
    await make(driver, ordering)
    for n in range(5):
        await bury(driver, str(n), partition=f"p{n}")
        await driver.pop("grave", batch=1, lease_seconds=10)
        driver.clock.advance(1)
    await driver.purge("grave", seqs=[Seq(4), Seq(5)])
    driver.clock.advance(10)

    await driver.expire("grave", limit=2)
    await driver.expire("grave", limit=2)

    assert (await driver.stats("grave")).expired == 2
    assert await depth(driver) == 3


@BOTH
async def test_I12_retention_that_ignores_groups_counts_for_those_that_never_looked(
    driver: Driver, ordering: Ordering
) -> None:
    await driver.create("grave", ordering=ordering, retention_seconds=10, retention_ignores_groups=True)
    await driver.seek(FROM_BEGINNING, "grave", "idle")
    await driver.push("a", "b", queue="grave")
    await driver.store.report_progress(driver.key("grave"), "spark", Seq(1), driver.now)
    driver.clock.advance(11)
    await driver.push("c", queue="grave")

    assert (await driver.retain("grave")).done == 2

    assert await lag(driver, "idle") == (3, 1, 0, 2)
    assert await lag(driver, "spark") == (2, 1, 0, 1)
    assert await depth(driver) == 1
    stats = await driver.store.report_progress(driver.key("grave"), "spark", Seq(3), driver.now)
    assert (stats.completed, stats.expired) == (1, 1)
    assert payloads(await driver.pop("grave", group="idle")) == ["c"]


@BOTH
async def test_I12_a_message_that_retention_takes_from_under_a_live_lease_is_settled_as_usual(
    driver: Driver, ordering: Ordering
) -> None:
    await driver.create(ordering=ordering, retention_seconds=10, retention_ignores_groups=True)
    await driver.push("a", "b")
    leased = await driver.pop(lease_seconds=1_000)
    driver.clock.advance(11)
    assert (await driver.retain()).done == 2
    await driver.ack(*leased)

    stats = await driver.stats()
    assert (stats.pushed, stats.completed, stats.expired) == (2, 2, 0)


@BOTH
async def test_I12_a_message_that_left_the_log_before_it_is_given_up_is_expired_and_not_dead(
    driver: Driver, ordering: Ordering
) -> None:
    await driver.create(ordering=ordering, retention_seconds=10, retention_ignores_groups=True)
    await driver.push("a")
    leased = await driver.pop(lease_seconds=1_000)
    driver.clock.advance(11)
    assert (await driver.retain()).done == 1
    await driver.reject(*leased)

    stats = await driver.stats()
    assert (stats.pushed, stats.dead, stats.expired) == (1, 0, 1)


# age


@pytest.mark.parametrize("more", [{}, {"retention_seconds": 10_000.0}, {"completed_retention_seconds": 10_000.0}])
@pytest.mark.parametrize("reader", ["nobody", "idle", "leased", "done", "external"])
@BOTH
async def test_dead_letters_leave_at_their_age_whatever_else_is_set(
    driver: Driver, ordering: Ordering, reader: str, more: dict[str, float]
) -> None:
    await make(driver, ordering, max_age_seconds=10, **more)
    await bury(driver, "a", "b", partition="p")
    match reader:
        case "idle":
            await driver.seek(FROM_BEGINNING, "grave", "g")
        case "leased":
            await driver.pop("grave", group="g", batch=1, lease_seconds=1000)
        case "done":
            await driver.ack(*await driver.pop("grave", group="g"))
        case "external":
            await driver.store.report_progress(driver.key("grave"), "g", Seq(0), driver.now)
    driver.clock.advance(5)
    await bury(driver, "young")
    driver.clock.advance(5)

    await driver.expire("grave")
    chore = await driver.retain("grave")

    assert (chore.done, chore.more) == (2, False)
    assert [letter.payload for letter in await driver.dead("grave")] == [b"young"]
    assert await driver.store.count_dead_letters(driver.dead_filter("grave")) == 1
    assert [message.payload for message in (await driver.browse("grave")).messages] == [b"young"]
    assert (await driver.queue_stats()).dead_letters == 1
    assert await depth(driver) == (2 if reader == "leased" else 1)
    assert len(await driver.replay("grave")) == 1
    assert await driver.purge("grave") == 0
    driver.clock.advance(1000)
    await driver.expire("grave")
    assert await depth(driver) == 0


@BOTH
async def test_the_pass_that_takes_old_letters_says_when_the_next_one_is_due(
    driver: Driver, ordering: Ordering
) -> None:
    await make(driver, ordering, max_age_seconds=100)
    chore = await driver.retain("grave")
    assert chore.next_at is not None
    assert chore.next_at <= driver.later(100)
    await bury(driver, "a", "b")
    due = driver.later(100)
    driver.clock.advance(40)

    chore = await driver.retain("grave")

    assert chore.next_at is not None
    assert driver.now < chore.next_at <= due


async def test_taking_old_letters_is_bounded(driver: Driver) -> None:
    await make(driver, max_age_seconds=10)
    await bury(driver, *"abcde")
    driver.clock.advance(10)

    chore = await driver.retain("grave", limit=3)
    assert (chore.done, chore.more) == (3, True)
    chore = await driver.retain("grave", limit=3)
    assert (chore.done, chore.more) == (2, False)
    assert await driver.dead("grave") == []


@BOTH
async def test_a_queue_that_kept_dead_letters_and_has_a_grave_of_its_own_buries_before_age_takes(
    driver: Driver, ordering: Ordering
) -> None:
    await make(driver, ordering)
    await bury(driver, "a")
    await driver.update(dead_letter_queue="none")
    await driver.update("grave", dead_letter_queue="second", max_age_seconds=10)
    driver.clock.advance(10)

    for _ in range(2):
        await driver.retain("grave")
        await driver.expire("grave")
    await driver.retain("grave")

    assert await driver.dead("grave") == []
    assert [letter.payload for letter in await driver.dead("second")] == [b"a"]


@BOTH
async def test_without_anybody_who_reads_an_ordinary_queue_buries_at_its_age_and_keeps_its_log(
    driver: Driver, ordering: Ordering
) -> None:
    await driver.create(ordering=ordering, max_age_seconds=10)
    await driver.push("a")
    driver.clock.advance(10)

    await driver.expire()
    await driver.retain()

    assert [letter.payload for letter in await driver.dead()] == [b"a"]
    stats = await driver.queue_stats()
    assert (stats.depth, stats.dead_letters) == (0, 1)
    assert len((await driver.browse()).messages) == 1, "retention decides about the log of an ordinary queue"
