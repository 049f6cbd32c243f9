"""Deleting one message, for routes and pages, with its audit entry."""

from __future__ import annotations

from skep.engine import Engine
from skep.http.request.call import Call
from skep.ids import Id
from skep.model import DeletedMessage, QueueKey, Seq

NAMED_GROUPS = 10
"""The largest number of groups that an audit entry names."""


async def delete_message(
    engine: Engine, call: Call, key: QueueKey, seq: Seq, id_: Id | None, *, dry_run: bool = False
) -> DeletedMessage:
    """Delete a message, or only show what a deletion would do (dry run)."""
    target = f"message {seq} of queue {key.name}"
    call.note(target=target, dry_run=dry_run)
    deleted = await engine.delete_message(key, seq, id_, dry_run=dry_run)
    call.note(target=target, count=1, before=_before(deleted), after=None if dry_run else "deleted", dry_run=dry_run)
    return deleted


def _before(deleted: DeletedMessage) -> str:
    """Where the message was, in words."""
    if not deleted.groups:
        return "pending, no groups"
    named = ", ".join(deleted.groups[:NAMED_GROUPS]) + (", …" if len(deleted.groups) > NAMED_GROUPS else "")
    held = f", {deleted.leases} under a lease" if deleted.leases else ""
    return f"pending for {named}{held}"
