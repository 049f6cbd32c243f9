"""Log retries with Python's logging.

stamina tells of them through structlog where that is installed, which it always is beside Skep. But structlog prints on standard
output until a program configures it, and standard output belongs to the program.
"""

from __future__ import annotations

import logging

from stamina.instrumentation import (
    RetryDetails,
    RetryHook,
    StructlogOnRetryHook,
    get_on_retry_hooks,
    set_on_retry_hooks,
)

from skep.errors import SkepError

_STRUCTLOGS = StructlogOnRetryHook.hook_factory.__module__


def tell_of_retries() -> None:
    """Take the place of stamina's hook for structlog. Hooks that the program has set stay as they are."""
    hooks = get_on_retry_hooks()
    if any(hook.__module__ == _STRUCTLOGS for hook in hooks):
        set_on_retry_hooks([_told(hook) if hook.__module__ == _STRUCTLOGS else hook for hook in hooks])


def _told(by_structlog: RetryHook) -> RetryHook:
    def tell(details: RetryDetails) -> None:
        import structlog  # which is slow to load, and only now is it needed

        if structlog.is_configured():
            by_structlog(details)
            return
        log = logging.getLogger("skep.client" if isinstance(details.caused_by, SkepError) else "stamina")
        log.warning("%s; trying again in %.2f seconds", details.caused_by, details.wait_for)

    return tell
