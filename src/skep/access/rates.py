"""How many requests a second are let in, and how many unknown keys are looked up."""

from __future__ import annotations

from skep.runtime.token_bucket import TokenBucket

BURST_SECONDS = 2.0
"""Who was quiet for so long may catch up at once."""
UNKNOWN_PER_SECOND = 20.0
"""Keys, and sessions, that are not known here and that the store is asked for: who makes them up does not keep it busy."""


def bucket_of(requests_per_second: float) -> TokenBucket:
    """So many requests per second, and some at once after a quiet while: one at least."""
    return TokenBucket(max(1.0, requests_per_second * BURST_SECONDS), max(1.0 / requests_per_second, BURST_SECONDS))
