"""Convert the engine's structs to the wire's: queues, groups, messages and dead letters."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import NamedTuple

import msgspec
from msgspec import Raw

from skep.clock import Instant
from skep.engine.attempts import DeliveryAttempt
from skep.errors import Code, SkepError
from skep.ids import Id, id_text, parse_id
from skep.model import (
    ArchiveStats,
    DeadLetter,
    DeadLetterOrigin,
    GroupStats,
    MessageState,
    Queue,
    QueueKey,
    QueueStats,
    StoredMessage,
)
from skep.model.consumer import consumer_of
from skep.model.history import ReplayRecord
from skep.wire.attempts import AttemptView, ConsumerView
from skep.wire.browsing import BrowsedMessage
from skep.wire.dead_letters import DeadLetterView, ReplayView
from skep.wire.groups import GroupFigures
from skep.wire.messages import NULL, DeadLetterStory
from skep.wire.queues import ArchiveFigures, ListedQueue, QueueDetail, QueueFigures, QueueView
from skep.wire.times import to_datetime


class ShownPayload(NamedTuple):
    """A payload as JSON, or the beginning of it as a text."""

    payload: Raw
    preview: str | None


def shown_payload(payload: bytes, content_type: str | None, *, is_whole: bool) -> ShownPayload:
    """The part of a payload that can be shown."""
    if is_whole:
        return ShownPayload(json_payload(payload, content_type), None)
    if content_type is None:
        # The cut may have gone through a character.
        return ShownPayload(NULL, payload.decode(errors="ignore"))
    return ShownPayload(NULL, base64.b64encode(payload).decode())


def json_payload(payload: bytes, content_type: str | None) -> Raw:
    """A payload as it stands in JSON: as it came, or as base64 when it is not JSON."""
    if content_type is None:
        return Raw(payload)
    return Raw(msgspec.json.encode(base64.b64encode(payload).decode()))


def json_headers(headers: bytes | None) -> Raw:
    """Headers as they stand in JSON."""
    return NULL if headers is None else Raw(headers)


def wanted_id(text: str, code: Code = Code.INVALID_REQUEST) -> Id:
    """The id that a text writes."""
    try:
        return parse_id(text)
    except ValueError:
        raise SkepError(code, f"an id is a UUID, not {text[:100]!r}") from None


def consumer_view(kept: str | None) -> ConsumerView | None:
    """The consumer, as its pop named itself."""
    if kept is None:
        return None
    who = consumer_of(kept)
    return ConsumerView(who.name, who.host, who.version, who.pid)


def attempt_view(one: DeliveryAttempt) -> AttemptView:
    """An attempt as a struct of the wire."""
    return AttemptView(
        one.group, one.attempt, one.outcome, to_datetime(one.leased_at),
        None if one.settled_at is None else to_datetime(one.settled_at),
        None if one.deadline is None else to_datetime(one.deadline), one.messages, one.error, consumer_view(one.consumer),
    )  # fmt: skip


def queue_view(queue: Queue) -> QueueView:
    """A queue with its settings."""
    return QueueView(
        queue.key.name, queue.settings, queue.holds_dead_letters,
        to_datetime(queue.created_at), to_datetime(queue.updated_at),
    )  # fmt: skip


def listed_queue(queue: Queue, stats: QueueStats | None, newest_keys: Mapping[QueueKey, Instant]) -> ListedQueue:
    """A queue of a list. ``newest_keys`` are the times of data keys: one from before the queue was made is of another queue."""
    return ListedQueue(
        queue.key.name, queue.settings, queue.holds_dead_letters,
        to_datetime(queue.created_at), to_datetime(queue.updated_at), None if stats is None else queue_figures(stats),
        newest_keys.get(queue.key, -1) >= queue.created_at,
    )  # fmt: skip


def queue_detail(queue: Queue, stats: QueueStats) -> QueueDetail:
    """A queue with all that is known of it."""
    return QueueDetail(
        queue.key.name, queue.settings, queue.holds_dead_letters,
        to_datetime(queue.created_at), to_datetime(queue.updated_at),
        queue_figures(stats), [group_figures(group, stats) for group in stats.groups],
    )  # fmt: skip


def queue_figures(stats: QueueStats) -> QueueFigures:
    """The figures of a queue."""
    return QueueFigures(
        stats.first_seq, stats.last_seq, stats.depth, stats.scheduled, stats.in_flight, stats.dead_letters,
        stats.oldest_age_seconds, stats.rates, None if stats.archive is None else archive_figures(stats.archive),
    )  # fmt: skip


def archive_figures(stats: ArchiveStats) -> ArchiveFigures:
    """How far the archive of a queue is whose retention waits for it."""
    return ArchiveFigures(stats.archived_seq, stats.unarchived, stats.unarchived_seconds)


class HeldMessages(NamedTuple):
    """Messages that retention keeps for one group alone, and the part of the queue's depth that is due to this group."""

    messages: int
    depth: int


def held_by(group: GroupStats, stats: QueueStats) -> HeldMessages:
    """The messages and the depth that are due to one group alone. An idle group holds nothing back."""
    if group.idle:
        return HeldMessages(0, 0)
    others = [one for one in stats.groups if one is not group and not one.idle]
    settled = min((one.progress_seq for one in others), default=stats.last_seq)
    depth = max((one.lag_messages for one in others), default=0)
    return HeldMessages(max(0, settled - group.progress_seq), max(0, group.lag_messages - depth))


def group_figures(stats: GroupStats, queue: QueueStats | None = None) -> GroupFigures:
    """The figures of a group; with its ``queue`` also the messages that it alone holds back."""
    held = None if queue is None else held_by(stats, queue)
    return GroupFigures(
        queue=stats.queue.name, consumer_group=stats.group, lag=stats.lag_messages, lag_seconds=stats.lag_seconds,
        progress_seq=stats.progress_seq, pushed=stats.pushed, completed=stats.completed, pending=stats.pending,
        in_flight=stats.in_flight, dead=stats.dead, expired=stats.expired, retried=stats.retried,
        partitions_pending=stats.partitions_pending, partitions_leased=stats.partitions_leased,
        oldest_at=None if stats.oldest_at is None else to_datetime(stats.oldest_at),
        created_at=to_datetime(stats.created_at), rates=stats.rates, external=stats.external,
        active_at=to_datetime(stats.active_at), inactive_seconds=stats.inactive_seconds, idle=stats.idle,
        held_messages=None if held is None else held.messages, held_depth=None if held is None else held.depth,
        archived_seq=stats.archived_seq,
    )  # fmt: skip


def browsed_message(message: StoredMessage) -> BrowsedMessage:
    """A message of the log."""
    is_whole = len(message.payload) == message.payload_bytes
    shown = shown_payload(message.payload, message.content_type, is_whole=is_whole)
    return BrowsedMessage(
        queue=message.queue.name, partition=message.partition, seq=message.seq, id=id_text(message.id),
        transaction_id=message.transaction_id, trace_id=id_text(message.trace_id),
        created_at=to_datetime(message.created_at), priority=message.priority, state=message.state,
        headers=json_headers(message.headers), content_type=message.content_type,
        payload_bytes=message.payload_bytes, payload=shown.payload, preview=shown.preview,
    )  # fmt: skip


def dead_letter_view(letter: DeadLetter, preview_bytes: int | None = None) -> DeadLetterView:
    """A dead letter, its payload cut when it is longer than the preview."""
    is_whole = preview_bytes is None or len(letter.payload) <= preview_bytes
    shown = shown_payload(
        letter.payload if is_whole else letter.payload[:preview_bytes], letter.content_type, is_whole=is_whole
    )
    return DeadLetterView(
        queue=letter.queue.name, seq=letter.seq, id=id_text(letter.id), source_queue=letter.source_queue,
        source_seq=letter.source_seq, partition=letter.partition, consumer_group=letter.group, reason=letter.reason,
        error=letter.error, attempts=letter.attempts, transaction_id=letter.transaction_id,
        trace_id=id_text(letter.trace_id), created_at=to_datetime(letter.created_at),
        failed_at=to_datetime(letter.failed_at), headers=json_headers(letter.headers),
        content_type=letter.content_type, payload_bytes=len(letter.payload), payload=shown.payload,
        preview=shown.preview,
    )  # fmt: skip


def dead_letter_story(origin: DeadLetterOrigin) -> DeadLetterStory:
    """The source of a delivered dead letter."""
    return DeadLetterStory(
        origin.source_queue, origin.source_seq, origin.partition, origin.group, origin.reason, origin.error,
        origin.attempts, to_datetime(origin.failed_at),
    )  # fmt: skip


def replay_view(queue: str, record: ReplayRecord, state: MessageState | None) -> ReplayView:
    """A dead letter of a queue that went back."""
    return ReplayView(
        queue, record.dead_seq, id_text(record.dead_id), record.queue, record.seq, id_text(record.id), record.group,
        record.reason, record.error, record.attempts, to_datetime(record.replayed_at), state,
    )  # fmt: skip


def age_seconds(since: int, now: Instant) -> float:
    """How long ago an instant was; 0 for one to come."""
    return max(0, now - since) / 1_000_000
