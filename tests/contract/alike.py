"""When a store and the reference are alike: their answers, and everything that can be seen of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from skep.errors import SkepError
from skep.model import (
    DeadLetter,
    DeadLetterFilter,
    DeadLetterOrigin,
    DeadReason,
    Delivery,
    GroupStats,
    MessageFilter,
    MessageState,
    QueueKey,
    QueueStats,
    StoredRange,
)
from skep.model.record import ReceiptKey
from tests.contract.driver import check_account, check_depth, check_entity
from tests.contract.strategies import COUNTERS, NAMES, PLENTY, RECEIPTS
from tests.support.reference import EXPIRED_LEASE, Group, Log

if TYPE_CHECKING:
    from tests.contract.compared import Compared
    from tests.support.reference_store import ReferenceStore


def told_alike(found: list[Delivery], wanted: list[Delivery]) -> list[Delivery]:
    """The wanted deliveries, whose dead letters tell of the errors that the found ones may tell of."""
    if len(found) != len(wanted):
        return wanted
    return [
        other
        if one.dead_letter is None or other.dead_letter is None
        else msgspec.structs.replace(
            other,
            dead_letter=msgspec.structs.replace(other.dead_letter, error=error_of(one.dead_letter, other.dead_letter)),
        )
        for one, other in zip(found, wanted, strict=True)
    ]


def error_of(found: DeadLetter | DeadLetterOrigin, wanted: DeadLetter | DeadLetterOrigin) -> str | None:
    """Return the error that the found dead letter should tell.

    A partition remembers the error of its head alone, so what dies of its age behind the head may tell of none.
    """
    if found.error == EXPIRED_LEASE or (found.error is None and wanted.reason is DeadReason.EXPIRED):
        return found.error
    return wanted.error


def which(letter: DeadLetter) -> tuple[object, ...]:
    """What tells a dead letter from all others: a message can die again, after a seek, but not twice at once."""
    return letter.source_queue, letter.source_seq, letter.group, letter.failed_at


def figures(stats: GroupStats, log: Log, now: int) -> dict[str, object]:
    """What is comparable: whether a lease that ran out was retried already is not told.

    Nor how old a message is that was deleted while it was leased.
    """
    group: Group = log.groups[stats.group]
    names = [
        "progress_seq",
        "pushed",
        "completed",
        "dead",
        "expired",
        "lag_messages",
        "created_at",
        "active_at",
        "idle",
        "archived_seq",
    ]
    if log.entries.keys() >= set(group.unsettled()):
        names.append("oldest_at")
    if log.is_ordered:
        names += ["pending", "in_flight", "partitions_pending", "partitions_leased"]
        if not any(lease.deadline <= now for lease in group.leases):
            names.append("retried")
    return {name: getattr(stats, name) for name in names}


def brief(deliveries: list[Delivery]) -> list[tuple[str, int, int]]:
    return [(delivery.partition, delivery.seq, delivery.attempt) for delivery in deliveries]


def plain(answer: object) -> object:
    """An answer without what is not promised: ids of queues, messages for people, rates, when a chore comes next."""
    if isinstance(answer, SkepError):
        return answer.code
    if isinstance(answer, list | StoredRange):
        return [plain(one) for one in answer]
    if isinstance(answer, dict):
        return {key: plain(value) for key, value in answer.items()}
    if isinstance(answer, msgspec.Struct):
        hidden = HIDDEN.get(type(answer).__name__, ())
        return {name: plain(getattr(answer, name)) for name in answer.__struct_fields__ if name not in hidden}
    return answer


HIDDEN: dict[str, tuple[str, ...]] = {
    "SettleResult": ("frees",),
    "Queue": ("id",),
    "PushResult": ("reason", "trace_id", "code"),
    "Chore": ("next_at", "more", "done"),
    "Delivery": ("priority",),
    "GroupStats": ("rates",),
    # Whether a pop has taken a lease over that ran out is not told.
    "DeletedMessage": ("leases",),
    "ForgetStep": ("queues",),
}


def follow_burials(machine: Compared, model: ReferenceStore) -> None:
    """Take over the order in which the store buried what it buried at once, and find new dead-letter queues."""
    for key in sorted(set(model.logs) - set(machine.queues)):
        machine.queues.append(key)
    for key in machine.queues[len(NAMES) :]:
        letters = machine.see(machine.store.dead_letters, DeadLetterFilter(queue=key), None, PLENTY)
        grave = model.log(key)
        places = {which(letter): seq for seq, letter in grave.dead.items()}
        order = [places.get(which(letter)) for letter in letters]
        found = [seq for seq in order if seq is not None]
        if sorted(grave.dead) == sorted(found) == [int(letter.seq) for letter in letters]:
            model.renumber(grave, found)


def compare(machine: Compared, model: ReferenceStore) -> None:
    """Everything that can be seen of every queue."""
    for key in machine.queues:
        actual = machine.see(machine.store.queue_stats, key, machine.now)
        expected = machine.run(model.queue_stats(key, machine.now))
        groups = [g.group for g in actual.groups], [g.group for g in expected.groups]
        assert groups[0] == groups[1], f"{key.name}: the groups of (store, reference) are {groups}"
        # Whether a dead-letter queue counts what it holds as dead letters of its own is the store's choice.
        names = ["first_seq", "last_seq", "depth", "scheduled"] + ["dead_letters"] * (key.name in NAMES)
        for name in names:
            values = getattr(actual, name), getattr(expected, name)
            assert values[0] == values[1], f"{key.name}: {name} of (store, reference) is {values}"
        # How many messages are in no lake is not exact where nobody knows of gaps.
        reached = [(s.archive.archived_seq, s.archive.unarchived_seconds) for s in (actual, expected) if s.archive]
        assert reached[:1] == reached[1:], f"{key.name}: (store, reference) are archived up to {reached}"
        stones = machine.see(machine.store.tombstones, key, 0, PLENTY), machine.run(model.tombstones(key, 0, PLENTY))
        assert stones[0] == stones[1], f"{key.name}: (store, reference) have forgotten {stones}"
        log = model.log(key)
        compare_log(machine, model, key, actual)
        for ours, theirs in zip(actual.groups, expected.groups, strict=True):
            check_account(ours)
            mine, wanted = figures(ours, log, machine.now), figures(theirs, log, machine.now)
            different = {name: (mine[name], wanted[name]) for name in mine if mine[name] != wanted[name]}
            assert not different, f"{key.name}, {ours.group}: (store, reference) are {different}"
    compare_records(machine, model)
    for key in machine.queues[len(NAMES) :]:
        letters = machine.see(machine.store.dead_letters, DeadLetterFilter(queue=key), None, PLENTY)
        expected_letters = machine.run(model.dead_letters(DeadLetterFilter(queue=key), None, PLENTY))
        assert len(letters) == len(expected_letters), f"(store, reference) hold {letters}, {expected_letters}"
        expected_letters = [
            msgspec.structs.replace(wanted, error=error_of(found, wanted))
            for found, wanted in zip(letters, expected_letters, strict=True)
        ]
        assert plain(letters) == plain(expected_letters), f"(store, reference) hold {letters}, {expected_letters}"


def compare_log(machine: Compared, model: ReferenceStore, key: QueueKey, stats: QueueStats) -> None:
    """What is in the log, and that depth and lag count nothing that is not."""
    everything = MessageFilter(queue=key, limit=PLENTY)
    pages = [
        machine.see(machine.store.messages, everything, machine.now),
        machine.run(model.messages(everything, machine.now)),
    ]
    there, wanted = [[int(message.seq) for message in page.messages] for page in pages]
    assert there == wanted, f"{key.name}: (store, reference) hold {there}, {wanted}"
    check_depth(stats)
    assert stats.groups or stats.depth == len(there) + stats.scheduled, f"{key.name}: the depth of {stats}"
    for group in stats.groups:
        if model.log(key).groups[group.group].leases:
            continue  # what is held may be gone
        waiting = MessageFilter(queue=key, group=group.group, state=MessageState.PENDING, limit=PLENTY)
        page = machine.see(machine.store.messages, waiting, machine.now)
        # What was replayed for another group counts until the group has come by it.
        others = model.log(key).for_others(group.group)
        assert len(page.messages) + others == group.pending, f"{key.name}: not all of {group} is there"


def compare_records(machine: Compared, model: ReferenceStore) -> None:
    """Counters with their events, and receipts."""
    records = machine.store.records
    for id_ in COUNTERS:
        key = machine.counter(id_)
        states = [machine.see(records.entities, [key]), machine.run(model.records.entities([key]))]
        assert states[0] == states[1], f"(store, reference) hold {states}"
        events = [
            machine.see(records.entity_events, key, 0, PLENTY), machine.run(model.records.entity_events(key, 0, PLENTY)),
        ]  # fmt: skip
        assert events[0] == events[1], f"(store, reference) hold {events}"
        if states[0][0] is not None:
            check_entity(states[0][0], events[0])
    keys = [ReceiptKey("machine", key, machine.tenant) for key in RECEIPTS]
    receipts = [
        machine.see(records.receipts, keys, machine.now),
        machine.run(model.records.receipts(keys, machine.now)),
    ]
    assert receipts[0] == receipts[1], f"(store, reference) hold {receipts}"
