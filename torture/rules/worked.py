"""What workers did with messages: effects of commands (I15), posts to an address (I4, I9), and repeats of webhooks (I3)."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

from skep.ids import Id
from skep.model import QueueKey
from torture.history import NEVER, Call, Entry, Violation
from torture.queues import name_in
from torture.track import Tracks


def effects_are_once(tracks: Tracks) -> Iterator[Violation]:
    """I15: the ack of a message, its event and its follow-up happen together, so that each message has one of each, in order."""
    for call in tracks.history.verb("effects"):
        if call.ended is None:
            continue
        queue, what = call.request
        ids = {pushed.id: name_in(pushed.message.payload) for pushed in tracks.history.pushes_to.get(queue, ())}
        entries = {ids[entry.id]: entry for entry in tracks.history.entries.get(queue, ())}
        for partition, names in call.answer.items():
            yield from effects_in_order(call, what, partition, names, entries)
        times = Counter(name for names in call.answer.values() for name in names)
        for name, entry in entries.items() if tracks.history.drained else ():
            if times[name] != 1 and entry.call.is_before(call):
                text = f"seq {entry.seq} of {queue.name} is done and has {times[name]} {what}"
                yield Violation("I15", text, (entry.call, call))


def effects_in_order(
    call: Call, what: str, partition: str, names: list[str], entries: dict[str, Entry]
) -> Iterator[Violation]:
    last = 0
    for name in names:
        entry = entries.get(name)
        if entry is None:
            yield Violation("I2", f"{partition}: {what} of {name}, which is not in the log", (call,))
        elif entry.partition != partition:
            yield Violation(
                "I4", f"seq {entry.seq} of {entry.partition} took effect in {partition}", (entry.call, call)
            )
        elif entry.seq < last:
            yield Violation("I4", f"{partition}: {what} of seq {entry.seq} came after {last}", (entry.call, call))
        else:
            last = entry.seq


def posts_are_in_order(tracks: Tracks) -> Iterator[Violation]:
    """I2, I4, I9: only what was pushed is posted, each message after those before it in its partition were taken, and all are in the end."""
    by_queue: dict[QueueKey, list[Call]] = defaultdict(list)
    for call in tracks.history.verb("receive"):
        by_queue[call.request.queue].append(call)
    payloads = {pushed.id: pushed.message.payload for pushed in tracks.history.pushes if not pushed.is_refused}
    for queue in tracks.history.worked:
        calls = sorted(by_queue[queue], key=lambda call: call.started)
        for call in calls:
            if payloads.get(call.request.id) != call.request.payload:
                yield Violation("I2", f"{call.request.payload!r} was posted and never pushed", (call,))
        if calls:
            yield from posts_of_partitions(tracks, queue, calls)


def posts_of_partitions(tracks: Tracks, queue: QueueKey, calls: list[Call]) -> Iterator[Violation]:
    first: dict[Id, Call] = {}
    taken: dict[Id, int] = {}
    for call in calls:
        first.setdefault(call.request.id, call)
        taken[call.request.id] = min(taken.get(call.request.id, NEVER), call.last_tick)
    slowest: dict[str, Entry] = {}
    for entry in tracks.history.entries.get(queue, ()):
        before = slowest.get(entry.partition)
        when = taken.get(entry.id, NEVER)
        if entry.id in first and before is not None and first[entry.id].started < taken.get(before.id, NEVER):
            text = f"{entry.partition}: seq {entry.seq} was posted before {before.seq} was taken"
            yield Violation("I4", text, (before.call, first[entry.id]))
        if before is None or when > taken.get(before.id, NEVER):
            slowest[entry.partition] = entry
        if when == NEVER and tracks.history.drained:
            yield Violation("I9", f"seq {entry.seq} of {queue.name} was never taken by its receiver", (entry.call,))


def repeats_are_once(tracks: Tracks) -> Iterator[Violation]:
    """I3: what a webhook was sent, perhaps several times, is in the log once."""
    sent = {call.request for call in tracks.history.verb("hook")}
    for call, messages in tracks.history.logs if sent else ():
        seen: dict[bytes, int] = {}
        for message in messages:
            if message.payload in seen and message.payload in sent:
                text = f"a repeat for a webhook is in the log as {seen[message.payload]} and {message.seq}"
                yield Violation("I3", text, (call,))
            seen[message.payload] = int(message.seq)
