"""The setting that was probably meant by an unknown name."""

from __future__ import annotations

import difflib

from skep.model.queue_settings import SETTINGS

ELSEWHERE = {
    "max_queue_size": "max_depth",
    "max_size": "max_depth",
    "dead_deadline": "max_age_seconds of the dead-letter queue, which deletes letters of that age",
    "dead_timeout": "max_age_seconds of the dead-letter queue, which deletes letters of that age",
    "retention_enabled": "retention_seconds, which deletes messages of that age when it is above 0",
    "lease_time": "lease_seconds",
    "retry_limit": "max_attempts",
    "max_retries": "max_attempts",
    "retry_delay": "initial_backoff_ms",
    "ttl": "max_age_seconds",
}
"""Names of settings in other message queues, and our settings for them, where the spelling gives no hint."""


def meant_setting(name: str) -> str | None:
    """The setting that was probably meant, perhaps with an explanation; None when no setting is near."""
    near = difflib.get_close_matches(name, list(SETTINGS), n=1)
    return ELSEWHERE.get(name) or (near[0] if near else None)
