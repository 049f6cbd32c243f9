"""The audit log of admin calls: an entry before the call, and its outcome after it. A call that cannot be noted is not made."""

from __future__ import annotations

import structlog
from msgspec import Struct

from skep.engine import Engine
from skep.engine.access import Access
from skep.errors import Code, SkepError
from skep.http.request.call import Answer, Call, Deed
from skep.http.request.endpoint import Handler
from skep.http.request.permission import Permission, Reach
from skep.model import QueueKey, QueueSettings
from skep.model.key import SERVER, AuditDetail, AuditEntry, AuditOutcome, Verb

ANONYMOUS = "anonymous"
"""The name in the audit log when the server asks for no keys."""
NAMES = 20
"""The largest number of touched queues that an entry names."""
TEXT_CHARACTERS = 1_000
"""The largest number of characters of the values before and after."""
_OUTCOMES = frozenset(AuditOutcome)
_VERBS = {
    "POST /api/v1/configure": "configure queue",
    "DELETE /api/v1/resources/queues/{queue}": "delete queue",
    "POST /api/v1/queues/{queue}/pause": "pause queue",
    "POST /api/v1/queues/{queue}/resume": "resume queue",
    "POST /api/v1/queues/{queue}/clear": "clear queue",
    "POST /api/v1/consumer-groups/{group}/seek": "seek group",
    "POST /api/v1/consumer-groups/{group}/release": "release leases",
    "DELETE /api/v1/consumer-groups/{group}": "delete group",
    "POST /api/v1/dlq/replay": "replay dead letters",
    "POST /api/v1/dlq/{queue}/{letter}/replay": "edit and replay dead letter",
    "POST /api/v1/dlq/purge": "purge dead letters",
    "POST /admin/queues/{name}/dlq/{id}/replay": "replay dead letters",
    "DELETE /admin/queues/{name}/dlq/{id}": "purge dead letters",
    "DELETE /api/v1/resources/queues/{queue}/messages/{seq}": "delete message",
    "DELETE /api/v1/messages/{partition}/{transactionId}": "delete message",
    "POST /queues/{queue}/messages/{seq}/delete": "delete message",
    "POST /api/v1/queues/{queue}/forget": "forget messages",
    "POST /api/v1/scheduled/cancel": "cancel scheduled messages",
    "POST /api/v1/scheduled/run": "run scheduled messages",
    "POST /api/v1/scheduled/move": "move scheduled messages",
    "POST /queues/{queue}/scheduled/cancel": "cancel scheduled messages",
    "POST /queues/{queue}/scheduled/run": "run scheduled messages",
    "POST /queues/{queue}/scheduled/move": "move scheduled messages",
    "DELETE /api/v1/operations/{operation}": "cancel operation",
    "PUT /api/v1/apps/{app}": "apply app",
    "DELETE /api/v1/apps/{app}": "remove app",
    "POST /api/v1/endpoints/reset": "reset endpoint",
    "POST /api/v1/encryption/rotate": "rotate encryption key",
    "POST /api/v1/encryption/rewrap": "rewrap encryption keys",
    "POST /api/v1/encryption/shred": "shred encryption keys",
    "POST /api/v1/keys": "create key",
    "DELETE /api/v1/keys/{key}": "revoke key",
    "POST /queues/{queue}/pause": "pause queue",
    "POST /queues/{queue}/settings": "configure queue",
    "POST /queues/{queue}/publish": "push message",
    "POST /queues/{queue}/clear": "clear queue",
    "POST /queues/{queue}/release": "release leases",
    "POST /queues/{queue}/groups/{group}/seek": "seek group",
    "POST /queues/{queue}/groups/{group}/delete": "delete group",
    "POST /dead-letters/{queue}/replay": "replay dead letters",
    "POST /dead-letters/{queue}/purge": "purge dead letters",
    "POST /dead-letters/{queue}/letters/{seq}/edit": "edit and replay dead letter",
    "POST /operations/{operation}/cancel": "cancel operation",
    "DELETE /api/v1/messages/{partition}/{transaction}": "delete message",
    "POST /api/v1/messages/{partition}/{transaction}/retry": "replay dead letters",
    "POST /api/v1/messages/{partition}/{transaction}/dlq": "give message up",
    "DELETE /api/v1/queues/{queue}/clear": "clear queue",
    "DELETE /api/v1/consumer-groups/{group}/queues/{queue}": "delete group",
    "POST /api/v1/consumer-groups/{group}/subscription": "seek group",
    "POST /api/v1/consumer-groups/{group}/queues/{queue}/seek": "seek group",
    "SQS CreateQueue": "create queue",
    "SQS SetQueueAttributes": "configure queue",
    "SQS DeleteQueue": "delete queue",
    "SQS PurgeQueue": "clear queue",
    "SQS TagQueue": "tag queue",
    "SQS UntagQueue": "untag queue",
    "SQS AddPermission": "add permission",
    "SQS RemovePermission": "remove permission",
    "SQS StartMessageMoveTask": "start move task",
    "SQS CancelMessageMoveTask": "cancel move task",
    "skep key create": "create key",
    "skep key revoke": "revoke key",
    "skep access open": "open access",
}
"""The action in words, by its route or command."""

log = structlog.get_logger("skep.access")


class Told(Struct, frozen=True):
    """An entry of the audit log for people. Old entries have no details."""

    entry: AuditEntry
    detail: AuditDetail
    outcome: str | None


def told(entry: AuditEntry) -> Told:
    """An entry, read."""
    outcome = entry.outcome
    failed = None if outcome is None or outcome in _OUTCOMES else outcome
    detail = entry.detail or AuditDetail(verb=verb_of(entry.action), target=_names(entry.queues), error=failed)
    return Told(entry, detail, outcome if failed is None else AuditOutcome.FAILED)


def verb_of(action: str) -> str:
    """The action of a route or command in words; by default the words of the route's path."""
    known = _VERBS.get(action)
    if known is not None:
        return known
    method, _, path = action.partition(" ")
    words = [part for part in path.split("/") if part and not part.startswith("{") and part not in ("api", "v1")]
    return " ".join(["delete", *words] if method == "DELETE" else words) or action


def is_audited(method: str, need: Permission) -> bool:
    """Whether calls of a route are noted: those that need an admin and change something."""
    return Verb.ADMIN in need.verbs and method not in ("GET", "HEAD")


def audited(access: Access, action: str, need: Permission, keep_seconds: float, handler: Handler) -> Handler:
    """The handler, wrapped so that its calls are noted."""

    async def noting(call: Call) -> Answer:
        parts = call.scope.get("path_params", {})
        # Pages have the queue in their path, and look at no other.
        call.touched = {call.path("queue")} if "queue" in parts else set()
        if "app" in parts:
            call.touched.add(f"app:{call.path('app')[:100]}")
        call.deed = Deed()
        actor = ANONYMOUS if call.principal is None else call.principal.name
        position = await access.note_audit(actor, action, keep_seconds)
        error: str | None = Code.INTERNAL
        try:
            answer = await handler(call)
            error = None
        except SkepError as raised:
            error = raised.code
            raise
        finally:
            await finish(call, position, error)
        return answer

    async def finish(call: Call, position: int, error: str | None) -> None:
        is_servers = need.reach in (Reach.SERVER, Reach.ADMINS)
        names = sorted(call.touched or ())[:NAMES]
        deed = call.deed or Deed()
        detail = AuditDetail(
            verb=deed.verb or verb_of(action), target=deed.target or _target(call, names), count=deed.count,
            before=_cut(deed.before), after=_cut(deed.after), error=error,
        )  # fmt: skip
        outcome = _outcome(deed, error)
        try:
            await access.finish_audit(position, SERVER if is_servers else call.tenant, names, outcome, detail)
        except SkepError as failure:  # the call is done, and its entry stays without an outcome
            log.warning("how it went cannot be noted", action=action, outcome=outcome, error=str(failure))

    return noting


def _outcome(deed: Deed, error: str | None) -> AuditOutcome:
    if error is None or deed.outcome is AuditOutcome.DECLINED:
        return deed.outcome
    return AuditOutcome.FAILED


def _target(call: Call, names: list[str]) -> str:
    """The target of the call, from the path and the queues that the call named."""
    parts, of = call.scope.get("path_params", {}), _names(names)
    for part, word in (("group", "group"), ("letter", "dead letter"), ("seq", "dead letter"), ("id", "dead letter")):
        if part in parts:
            return f"{word} {call.path(part)[:255]}" + (f" of {of}" if of else "")
    return f"operation {call.path('operation')[:100]}" if "operation" in parts else of


def _names(names: tuple[str, ...] | list[str]) -> str:
    marked = [name.replace(":", " ", 1) for name in names if name.startswith(("key:", "app:"))]
    queues = [name for name in names if not name.startswith(("key:", "app:"))]
    if queues:
        marked.append(("queue " if len(queues) == 1 else "queues ") + ", ".join(queues))
    return ", ".join(marked)


async def settings_before(engine: Engine, key: QueueKey) -> QueueSettings | None:
    """The settings of a queue that is about to be changed; None when it is about to be made."""
    try:
        return (await engine.get_queue(key)).settings
    except SkepError as error:
        if error.code is not Code.QUEUE_NOT_FOUND:
            raise
        return None


def note_settings(call: Call, before: QueueSettings | None, after: QueueSettings, verb: str | None = None) -> None:
    """Note which settings of a queue have changed; of a new queue, those that differ from the defaults."""
    usual = QueueSettings() if before is None else before
    changed = [name for name in after.__struct_fields__ if getattr(after, name) != getattr(usual, name)]
    call.note(
        verb=verb, count=len(changed), before="no queue" if before is None else _settings(before, changed), after=_settings(after, changed)
    )  # fmt: skip


def _settings(settings: QueueSettings, names: list[str]) -> str:
    values = {name: getattr(settings, name) for name in names}
    # Not "none": as the name of a dead-letter queue that means another thing.
    return ", ".join(f"{name}={'default' if value is None else value}" for name, value in values.items())


def _cut(text: str | None) -> str | None:
    return text if text is None or len(text) <= TEXT_CHARACTERS else text[: TEXT_CHARACTERS - 1] + "…"
