"""Noting what admins do: that someone is about to, and how it went. What cannot be noted is not done."""

from __future__ import annotations

import structlog

from skep.engine.access import Access
from skep.errors import Code, SkepError
from skep.http.endpoint import Handler
from skep.http.exchange import Answer, Call
from skep.http.need import Need, Reach
from skep.keys import DONE, SERVER, Verb

ANONYMOUS = "anonymous"
"""Who it was where nobody is asked."""
NAMES = 20
"""So many of the queues that were touched are named."""

log = structlog.get_logger("skep.access")


def is_audited(method: str, need: Need) -> bool:
    """Whether what an operation does is noted: all that needs an admin and changes something."""
    return Verb.ADMIN in need.verbs and method not in ("GET", "HEAD")


def audited(access: Access, action: str, need: Need, keep_seconds: float, handler: Handler) -> Handler:
    """The same handler, with a note of what it does."""

    async def noting(call: Call) -> Answer:
        # Pages have the queue in their path, and look at no other.
        call.touched = {call.path("queue")} if "queue" in call.scope.get("path_params", {}) else set()
        actor = ANONYMOUS if call.principal is None else call.principal.name
        position = await access.note_audit(actor, action, keep_seconds)
        outcome: str = Code.INTERNAL
        try:
            answer = await handler(call)
            outcome = DONE
        except SkepError as error:
            outcome = error.code
            raise
        finally:
            await finish(call, position, outcome)
        return answer

    async def finish(call: Call, position: int, outcome: str) -> None:
        is_servers = need.reach in (Reach.SERVER, Reach.ADMINS)
        names = sorted(call.touched or ())[:NAMES]
        try:
            await access.finish_audit(position, SERVER if is_servers else call.tenant, names, outcome)
        except SkepError as error:  # it is done, and the entry says that it was begun
            log.warning("how it went cannot be noted", action=action, outcome=outcome, error=str(error))

    return noting
