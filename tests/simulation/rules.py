"""What a simulated run must show besides the promises: messages come neither before their time nor long after it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise

from skep.clock import seconds
from skep.model import QueueKey
from tests.simulation.expiry import lifetime_of
from torture.history import Call, Entry, Given, History, Violation

PROMPT_MICROS = seconds(0.5)
"""Where nothing is slow, a waiting pop gets a message within this time: many times what all steps to it take."""


def too_early(history: History) -> Iterator[Violation]:
    """Messages that came before the time they were scheduled for."""
    due = {pushed.id: pushed.message.deliver_at for pushed in history.pushes if pushed.message.deliver_at is not None}
    for given in history.gives:
        if given.call.latest_now < due.get(given.delivery.id, 0):
            yield Violation("scheduled", f"seq {given.delivery.seq} came before its time", (given.call,))


def stamps_fall(history: History) -> Iterator[Violation]:
    """Messages that are older than the one before them in the log: whatever the clock does, that must not be."""
    for call, messages in history.logs:
        for one, following in pairwise(messages):
            if following.created_at < one.created_at:
                yield Violation("stamps", f"seq {following.seq} is older than {one.seq}", (call,))


def too_late(history: History) -> Iterator[Violation]:
    """Pops that went on waiting while a new message was ready for them."""
    groups: dict[tuple[QueueKey, str], Group] = {}
    for call in history.verb("pop"):
        if call.ended is None or call.latest_now - call.now < PROMPT_MICROS:
            continue
        [request], [result] = call.request, call.answer
        settings = history.settings_of(request.queue)
        if lifetime_of(settings) is not None or settings.retention_ignores_groups:
            continue  # it may have expired meanwhile
        key = (request.queue, request.group)
        group = groups.get(key) or groups.setdefault(key, Group(history, *key))
        got = {delivery.seq for delivery in result.deliveries}
        for entry in group.ready_during(call):
            if request.partition in (None, entry.partition) and (not got or entry.seq in got):
                text = f"{request.group} waited, though seq {entry.seq} of {request.queue.name} was ready"
                yield Violation("prompt", text, (entry.call, call))


class Group:
    """What one group got of one queue, and when it had settled it."""

    def __init__(self, history: History, queue: QueueKey, name: str) -> None:
        self._entries = history.entries.get(queue, [])
        self._is_ordered = history.is_ordered(queue)
        self._is_known = not history.unanswered_pops.get((queue, name))
        self._gives: dict[int, list[Given]] = defaultdict(list)
        self._settled_at: dict[int, int] = {}
        for given in history.gives:
            if given.group == (queue, name):
                self._gives[given.delivery.seq].append(given)
                if given.request.auto_ack:
                    self._settled_at[given.delivery.seq] = given.call.latest_now
        for settled in history.settles:
            if settled.group == (queue, name) and settled.is_final:
                self._settled_at[settled.settlement.seq] = settled.call.latest_now

    def ready_during(self, call: Call) -> Iterator[Entry]:
        """The messages that nobody had got yet, and that were ready for so long at the end of the call that it had to get them."""
        since = call.latest_now - PROMPT_MICROS
        busy = {
            given.delivery.partition
            for seq, gives in self._gives.items()
            for given in gives
            if given.call is not call
            and given.call.started < call.last_tick
            and self._settled_at.get(seq, call.latest_now) > since
        }
        for entry in self._entries if self._is_known else ():
            is_old = entry.is_answered and entry.call.latest_now <= since
            if not is_old or (self._is_ordered and entry.partition in busy):
                continue
            if all(given.call is call or given.call.started > call.last_tick for given in self._gives[entry.seq]):
                yield entry
