"""All calls of both clients, except those that move messages. Nothing here sends anything."""

from __future__ import annotations

from skep.client.access_calls import AccessCalls, EncryptionCalls
from skep.client.dead_letter_calls import DeadLetterCalls
from skep.client.log_calls import LogCalls
from skep.client.message_calls import MessageCalls
from skep.client.queue_calls import QueueCalls
from skep.client.record_calls import RecordCalls
from skep.client.scheduled_calls import ScheduledCalls


class AdminCalls(
    QueueCalls, MessageCalls, DeadLetterCalls, ScheduledCalls, RecordCalls, AccessCalls, EncryptionCalls, LogCalls
):
    """The client's calls for everything but pushing, popping and settling."""
