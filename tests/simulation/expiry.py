"""What a simulated run must show of messages that grow old: none expires or leaves the log before its time, or comes or stays after it."""

from __future__ import annotations

from collections.abc import Iterator

from skep.clock import Instant, seconds
from skep.model import QueueSettings
from torture.history import Entry, History, Violation
from torture.track import Track, Tracks

REMOVED_MICROS = seconds(5)
"""So long after its time a message has left the log: several times what the chores wait for."""


def lifetime_of(settings: QueueSettings) -> int | None:
    """After this time an unsettled message is given up, in microseconds."""
    return _shortest(settings.max_age_seconds, settings.max_wait_seconds)


def may_remove(settings: QueueSettings) -> bool:
    """Whether retention takes messages from the log."""
    return settings.retention_seconds > 0 or settings.completed_retention_seconds > 0


def old_ones(history: History) -> Iterator[Violation]:
    """All that the rules of this file find."""
    tracks = Tracks(history)
    yield from came_too_late(history)
    yield from left_too_early(tracks)
    for track in tracks.groups.values():
        lifetime = lifetime_of(track.settings)
        if lifetime is not None and track.is_ordered and not track.moves.all:
            yield from expired_too_early(track, lifetime)


def came_too_late(history: History) -> Iterator[Violation]:
    """Messages that came though they had expired before the pop began."""
    for given in history.gives:
        lifetime = lifetime_of(history.settings_of(given.delivery.queue))
        if lifetime is not None and given.delivery.created_at + lifetime <= given.call.now:
            yield Violation("expiry", f"seq {given.delivery.seq} came after its time", (given.call,))


def left_too_early(tracks: Tracks) -> Iterator[Violation]:
    """Messages that were gone from the log while they were younger than everything that removes them."""
    history = tracks.history
    for look, messages in history.logs:
        settings = history.settings_of(look.request)
        limit = _shortest(settings.retention_seconds, settings.max_age_seconds)
        if limit is None or settings.completed_retention_seconds or tracks.may_be_cleared(look.request):
            continue
        found = {message.id for message in messages}
        for entry in history.entries.get(look.request, ()):
            is_there = entry.is_answered and entry.call.is_before(look)
            if is_there and entry.id not in found and look.latest_now < entry.call.now + limit:
                text = f"seq {entry.seq} of {look.request.name} left the log before its time"
                yield Violation("retention", text, (entry.call, look))


def expired_too_early(track: Track, lifetime: int) -> Iterator[Violation]:
    """Messages that a group was led past, though they were neither settled nor too old."""

    def is_young(entry: Entry, now: Instant) -> bool:
        return entry.is_answered and now < entry.call.now + lifetime

    for partition, holdings in track.holdings.items():
        places = track.by_partition.get(str(partition), ())
        for holding in holdings:
            for entry in (track.entries[place] for place in places):
                if entry.seq >= max(holding.seqs):
                    break
                is_passed = track.settled_tick(entry, None) > holding.call.last_tick and entry.seq not in holding.seqs
                if is_passed and is_young(entry, holding.call.latest_now):
                    text = f"seq {entry.seq} expired for {track.group} before its time"
                    yield Violation("expiry", text, (entry.call, holding.call))


def stayed_too_long(history: History) -> Iterator[Violation]:
    """Messages that were still in the log long after everybody had settled them. For runs in which no server dies with its timers."""
    for look, messages in history.logs:
        settings = history.settings_of(look.request)
        limit = _shortest(settings.retention_seconds, settings.completed_retention_seconds)
        if limit is None or look.client != "observer":
            continue
        for message in messages:
            if message.created_at + limit + REMOVED_MICROS <= look.now:
                yield Violation("retention", f"seq {message.seq} of {look.request.name} stays in the log", (look,))


def _shortest(*durations: float) -> int | None:
    return min((seconds(duration) for duration in durations if duration > 0), default=None)
