"""Actions on queues themselves: create, find, list, describe, change, purge, delete, and who buries in one."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Mapping

import msgspec

from skep.engine import Engine
from skep.errors import Code, SkepError
from skep.http.auditing import note_settings
from skep.http.request.call import Call
from skep.http.sqs import attributes
from skep.http.sqs.door import SqsDoor, named, queue_of
from skep.http.sqs.faults import QUEUE_NAME_EXISTS, UNSUPPORTED, SqsError, invalid, missing
from skep.http.sqs.names import FIFO, arn, tenant_of
from skep.http.sqs.queues import SqsQueue, no_queue
from skep.http.sqs.shapes import (
    AttributesResult,
    CreateQueueRequest,
    GetAttributesRequest,
    GetQueueUrlRequest,
    ListQueuesRequest,
    Nothing,
    PageRequest,
    QueueRequest,
    QueueUrlResult,
    QueueUrlsResult,
    SetAttributesRequest,
    SourceQueuesResult,
)
from skep.http.sqs.tagging import check_tags
from skep.model import ClearScope, Queue, QueueKey, QueueSettings
from skep.model.key import Verb

_NAME = re.compile(rf"[A-Za-z0-9_-]{{1,80}}|[A-Za-z0-9_-]{{1,75}}{re.escape(FIFO)}", re.ASCII)
PAGE = 1_000
NAME_CHARACTERS = 255


async def create(door: SqsDoor, call: Call, request: CreateQueueRequest) -> QueueUrlResult:
    """Create a queue; or find it, when it has all the attributes that are asked for."""
    name = request.queue_name
    if name is None:
        raise missing("QueueName")
    if not _NAME.fullmatch(name):
        raise invalid(
            "QueueName", name, "Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in length."
        )
    is_fifo = name.endswith(FIFO)
    if is_fifo is not (request.attributes.get(attributes.FIFO_QUEUE) == "true"):
        raise invalid(
            "QueueName",
            name,
            f"The name of a FIFO queue, and of no other, ends with {FIFO}, and it has the attribute FifoQueue=true.",
        )
    attributes.check(request.attributes, is_fifo=is_fifo, is_new=True)
    check_tags(request.tags)
    key = call.queue(name)
    await _check_redrive(door, call, key, request.attributes)
    settings = attributes.new_settings(request.attributes, is_fifo=is_fifo).apply(QueueSettings())
    try:
        created = await door.engine.create_queue(key, settings)
        note_settings(call, None, created.settings, "create queue")
    except SkepError as error:
        if error.code is not Code.QUEUE_EXISTS:
            raise
        found = await door.queues.read(key)
        if found.written is not None:
            _check_same(call, found, request.attributes)
            return QueueUrlResult(door.url(call, key))
        # Made natively, or by a create of SQS that was cut off: it becomes what is asked for now.
        await door.engine.update_queue(key, attributes.changes(request.attributes, is_fifo=is_fifo))
    await door.queues.change_note(
        key,
        lambda queue: msgspec.structs.replace(
            queue.note,
            attributes=attributes.kept(request.attributes, queue.note.attributes),
            tags={**queue.note.tags, **request.tags},
        ),
    )
    return QueueUrlResult(door.url(call, key))


def _check_same(call: Call, queue: SqsQueue, asked: Mapping[str, str]) -> None:
    told = attributes.told(call, queue)
    for name, value in asked.items():
        same = (
            attributes.redrive_policy(value) == attributes.policy_of(queue.key, queue.queue.settings)
            if name == attributes.REDRIVE
            else value == told.get(name, "")
        )
        if not same:
            raise SqsError(
                QUEUE_NAME_EXISTS,
                f"A queue already exists with the same name and a different value for attribute {name}",
            )


async def _check_redrive(door: SqsDoor, call: Call, key: QueueKey, given: Mapping[str, str]) -> None:
    """Check that the dead-letter queue of a redrive policy is there, of the same kind, and lets this queue in."""
    value = given.get(attributes.REDRIVE)
    policy = None if value is None else attributes.redrive_policy(value)
    if value is None or policy is None:
        return
    if policy.queue.tenant != key.tenant:
        raise invalid(attributes.REDRIVE, value, "The dead-letter queue must be of the same account.")
    call.check(policy.queue)
    try:
        target = await door.queues.read(policy.queue)
    except SqsError:
        raise invalid(attributes.REDRIVE, value, "Dead letter target does not exist.") from None
    if target.is_fifo is not key.name.endswith(FIFO):
        raise invalid(
            attributes.REDRIVE,
            value,
            "The dead-letter queue of a FIFO queue is a FIFO queue, and that of a standard queue a standard queue.",
        )
    if not _lets_in(call, target, key):
        raise invalid(
            attributes.REDRIVE, value, "The redrive allow policy of the dead-letter queue does not let this queue in."
        )


def _lets_in(call: Call, target: SqsQueue, source: QueueKey) -> bool:
    text = target.note.attributes.get(attributes.REDRIVE_ALLOW)
    if text is None:
        return True
    policy = attributes.document(attributes.REDRIVE_ALLOW, text)
    match policy.get("redrivePermission"):
        case attributes.DENY_ALL:
            return False
        case attributes.BY_QUEUE:
            allowed = policy.get("sourceQueueArns")
            own = arn(call, source).split(":", 4)[4]
            return isinstance(allowed, list) and any(str(one).split(":", 4)[4:] == [own] for one in allowed)
    return True


async def find(door: SqsDoor, call: Call, request: GetQueueUrlRequest) -> QueueUrlResult:
    """The URL of a queue, for everybody who may do something with it."""
    if request.queue_name is None:
        raise missing("QueueName")
    if request.queue_owner is not None:
        call.name_tenant(tenant_of(request.queue_owner))
    key = QueueKey(request.queue_name, call.tenant)
    may = call.principal
    verb = Verb.READ if may is None else next((one for one in Verb if may.may(one, key.tenant, key.name)), Verb.READ)
    call.check(key, verb)
    return QueueUrlResult(door.url(call, (await door.queues.get(key)).key))


async def list_queues(door: SqsDoor, call: Call, request: ListQueuesRequest) -> QueueUrlsResult:
    """The queues that the caller may see, by name."""
    prefix, visible = request.queue_name_prefix, call.visible

    def matches(queue: Queue) -> bool:
        return queue.key.name.startswith(prefix) and visible(queue.key)

    after = max(_after(request.next_token), prefix[:-1])
    found, token = await _page(door.engine, call.tenant, after, request.max_results, matches, prefix)
    return QueueUrlsResult([door.url(call, key) for key in found], token)


async def dead_letter_sources(door: SqsDoor, call: Call, request: PageRequest) -> SourceQueuesResult:
    """The queues whose redrive policy names this one."""
    queue = await queue_of(door, call, request.queue_url, Verb.READ)

    def matches(one: Queue) -> bool:
        return _buries_in(one, queue.key) and call.may(one.key)

    found, token = await _page(door.engine, queue.key.tenant, _after(request.next_token), request.max_results, matches)
    return SourceQueuesResult([door.url(call, key) for key in found], token)


async def sources_of(engine: Engine, key: QueueKey) -> list[QueueKey]:
    """All queues whose messages die into this one."""
    found, _ = await _page(engine, key.tenant, "", None, lambda one: _buries_in(one, key))
    return found


def _buries_in(one: Queue, key: QueueKey) -> bool:
    policy = attributes.policy_of(one.key, one.settings)
    return policy is not None and policy.queue == key and not one.holds_dead_letters


async def _page(
    engine: Engine, tenant: str, after: str, most: int | None, matches: Callable[[Queue], bool], prefix: str = ""
) -> tuple[list[QueueKey], str | None]:
    """The queues that match, by name, and where the next page begins; only who says how many are wanted gets pages.

    What comes after all names with the ``prefix`` is not looked at.
    """
    if most is not None and not 1 <= most <= PAGE:
        raise invalid("MaxResults", most, f"Must be between 1 and {PAGE}.")
    limit = PAGE if most is None else most
    found: list[QueueKey] = []
    while len(found) <= limit:
        page = await engine.list_queues(tenant, after=after, limit=PAGE)
        found += [queue.key for queue in page if matches(queue)]
        if len(page) < PAGE or page[-1].key.name[: len(prefix)] > prefix:
            break
        after = page[-1].key.name
    token = found[limit - 1].name if most is not None and len(found) > limit else None
    return found[:limit], None if token is None else base64.urlsafe_b64encode(token.encode()).decode()


def _after(token: str | None) -> str:
    """The name after which a page begins."""
    if token is None:
        return ""
    try:
        name = base64.urlsafe_b64decode(token).decode()
        if len(name) > NAME_CHARACTERS:
            raise ValueError
    except (binascii.Error, ValueError):
        raise invalid("NextToken", token, "it is none of this service.") from None
    return name


async def get_attributes(door: SqsDoor, call: Call, request: GetAttributesRequest) -> AttributesResult:
    """Attributes of a queue, and its figures."""
    key = named(call, request.queue_url, Verb.READ)
    queue = await door.queues.read(key)
    names = request.attribute_names
    figures: dict[str, str] = {}
    if "All" in names or any(name in attributes.COUNTS for name in names):
        figures = attributes.counts(await door.engine.browse.queue_stats(key))
    return AttributesResult(attributes.chosen(names, lambda: attributes.told(call, queue) | figures))


async def set_attributes(door: SqsDoor, call: Call, request: SetAttributesRequest) -> Nothing:
    """Change attributes of a queue."""
    key = named(call, request.queue_url, Verb.ADMIN)
    queue = await door.queues.read(key)
    attributes.check(request.attributes, is_fifo=queue.is_fifo, is_new=False)
    await _check_redrive(door, call, key, request.attributes)
    changes = attributes.changes(request.attributes, is_fifo=queue.is_fifo)
    if changes.given():
        changed = await door.engine.update_queue(key, changes)
        note_settings(call, queue.queue.settings, changed.settings, "configure queue")
    await door.queues.change_note(
        key,
        lambda found: msgspec.structs.replace(
            found.note, attributes=attributes.kept(request.attributes, found.note.attributes)
        ),
    )
    return Nothing()


async def purge(door: SqsDoor, call: Call, request: QueueRequest) -> Nothing:
    """Delete all messages of a queue."""
    key = named(call, request.queue_url, Verb.ADMIN)
    await door.queues.read(key)
    cleared = await door.engine.clear(key, ClearScope.ALL)
    call.note(count=cleared.pending + cleared.scheduled)
    return Nothing()


async def delete(door: SqsDoor, call: Call, request: QueueRequest) -> Nothing:
    """Delete a queue and its messages."""
    key = named(call, request.queue_url, Verb.ADMIN)
    try:
        deleted = await door.engine.delete_queue(key)
    except SkepError as error:
        if error.code is not Code.DEAD_LETTER_QUEUE_IN_USE:
            raise
        raise SqsError(
            UNSUPPORTED, f"{error.message}: delete the source queue first, or remove its RedrivePolicy."
        ) from None
    if not deleted:
        raise no_queue(key)
    return Nothing()
