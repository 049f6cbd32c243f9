"""Rate limits: requests per second, and look-ups of unknown keys."""

from __future__ import annotations

from skep.runtime.token_bucket import TokenBucket

BURST_SECONDS = 2.0
"""The burst of a limit, in seconds: after a quiet time, this much may come at once."""
UNKNOWN_PER_SECOND = 20.0
"""Look-ups per second of unknown keys and sessions in the store: made-up ones must not keep it busy."""


def bucket_of(requests_per_second: float) -> TokenBucket:
    """A token bucket: a number of requests per second, and after a quiet time a burst of at least one."""
    return TokenBucket(max(1.0, requests_per_second * BURST_SECONDS), max(1.0 / requests_per_second, BURST_SECONDS))
