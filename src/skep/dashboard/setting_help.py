"""What each setting of a queue means, in a sentence beside its field. `docs/settings.md` has the whole story."""

from __future__ import annotations

HELP = {
    "namespace": "Groups queues: consumers can pop from all queues of a namespace.",
    "task": "Groups queues by kind of work, like namespace.",
    "priority": "A pop over several queues empties the queue with the higher number first.",
    "ordering": "per_key: in order within each partition. fifo: the whole queue in order. unordered: no order.",
    "lease_seconds": "How long a consumer may work on a message before it is redelivered (visibility timeout).",
    "max_attempts": "Deliveries before a message is dead-lettered. 0: no limit.",
    "initial_backoff_ms": "Wait after the first failed attempt. It doubles with each further failure.",
    "max_backoff_ms": "Longest wait between two attempts.",
    "dead_letter_queue": "Queue for messages that failed for good. Empty: NAME.dead. none: they are discarded.",
    "max_depth": "Most unsettled messages the queue accepts; more pushes get QUEUE_FULL. 0: no limit.",
    "max_age_seconds": "An unsettled message older than this is dead-lettered as expired. 0: off.",
    "retention_seconds": "Messages older than this are deleted once every group settled them. 0: kept forever.",
    "completed_retention_seconds": "Messages are deleted this long after every group settled them, whatever their age. 0: off.",
    "retention_ignores_groups": "Retention also deletes messages that a group has not settled yet.",
    "group_idle_seconds": "A group unused for this long no longer holds back retention and max_depth. 0: never.",
    "delayed_processing_seconds": "A message is delivered this long after its push at the earliest.",
    "window_buffer_seconds": "A partition rests this long after its newest message, so that bursts arrive as one batch.",
    "max_wait_seconds": "An unsettled message older than this is skipped, without a dead letter. 0: off.",
    "dedup_window_seconds": "How long a transaction id (idempotency key) makes a repeated push a duplicate.",
    "encryption_enabled": "Payloads are encrypted before they are stored.",
}
