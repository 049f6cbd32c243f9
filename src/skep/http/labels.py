"""Namespace and task on a push: the labels of the queue that it makes.

Labels belong to a queue, not to a message. So a push may repeat the labels of its queue, and set those of a queue that it creates.
It cannot change the labels of an existing queue: that needs the admin verb.
"""

from __future__ import annotations

from collections.abc import Sequence

from skep.engine import Engine
from skep.errors import Code, SkepError
from skep.model import Queue, QueueKey, QueueSettings
from skep.wire.messages import PushItem

LABELS = ("namespace", "task")


def has_labels(items: Sequence[PushItem]) -> bool:
    """Whether an item labels its queue, which few do."""
    return True in [item.namespace is not None or item.task is not None for item in items]


async def label_queues(engine: Engine, items: Sequence[PushItem], tenant: str) -> None:
    """Create the missing queues that items label; INVALID_REQUEST when a label differs from that of its queue."""
    wanted: dict[str, dict[str, str]] = {}
    for item in items:
        if item.namespace is not None or item.task is not None:
            _collect(wanted.setdefault(item.queue, {}), item)
    for name, labels in wanted.items():
        queue = await _labelled(engine, QueueKey(name, tenant), labels)
        if queue is not None:
            _check(queue, labels)


def _collect(labels: dict[str, str], item: PushItem) -> None:
    for what, text in zip(LABELS, (item.namespace, item.task), strict=True):
        if text is not None and labels.setdefault(what, text) != text:
            raise SkepError(
                Code.INVALID_REQUEST,
                f"two items label queue {item.queue[:100]!r} with {what} {labels[what][:100]!r} and {text[:100]!r}. "
                f"A queue has one {what}: give all its items the same, or none.",
                queue=item.queue,
            )


async def _labelled(engine: Engine, key: QueueKey, labels: dict[str, str]) -> Queue | None:
    """The queue of a push, created with these labels when it is missing; None when the store is away."""
    try:
        return await engine.get_queue(key)
    except SkepError as error:
        if error.code is Code.STORE_UNAVAILABLE and engine.spool is not None:
            return None  # the push is spooled, and its queue made without them when it is stored
        if error.code is not Code.QUEUE_NOT_FOUND or not engine.settings.create_queues_on_push:
            raise
    try:
        return await engine.create_queue(key, QueueSettings(namespace=labels.get("namespace"), task=labels.get("task")))
    except SkepError as refused:
        if refused.code is not Code.QUEUE_EXISTS:
            raise
        return await engine.get_queue(key)  # another push made it at this very moment


def _check(queue: Queue, labels: dict[str, str]) -> None:
    for what, text in labels.items():
        found = getattr(queue.settings, what)
        if found != text:
            has = f"the {what} {found!r}" if found is not None else f"no {what}"
            raise SkepError(
                Code.INVALID_REQUEST,
                f"queue {queue.key.name!r} has {has}, and the push says {text[:100]!r}. Push without the {what}, or change "
                f"that of the queue first: skep queue update {queue.key.name} --{what} {text[:100]}",
                queue=queue.key.name,
            )
