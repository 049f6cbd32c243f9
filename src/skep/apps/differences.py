"""Differences between two versions of an app beside queue settings: the parts that come, change and go."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum

from msgspec import Struct, structs

from skep.model import QueueChanges
from skep.spec import App


class PartAction(StrEnum):
    """The change of a part: it comes, changes or goes."""

    ADD = "add"
    CHANGE = "change"
    REMOVE = "remove"


class PartChange(Struct, frozen=True):
    """One part of an app that comes, changes or goes. ``danger`` says what that may break; empty when nothing."""

    kind: str
    name: str
    action: PartAction
    danger: str = ""


_REMOVED = {
    "webhook": "requests to it are refused",
    "entity": "its commands run no longer; what is stored stays",
    "schedule": "its messages come no longer",
}


def part_changes(before: App | None, after: App | None) -> list[PartChange]:
    """Every part that differs; None for an app that is not there."""
    nothing = App(name="")
    old, new = before or nothing, after or nothing
    return [
        *_queue_types(old, new),
        *_parts("webhook", old.webhooks, new.webhooks),
        *_parts("entity", old.entities, new.entities),
        *_parts("schedule", old.schedules, new.schedules),
    ]


def _parts(kind: str, before: Mapping[str, object], after: Mapping[str, object]) -> Iterator[PartChange]:
    for name, part in after.items():
        if name not in before:
            yield PartChange(kind, name, PartAction.ADD)
        elif before[name] != part:
            yield PartChange(kind, name, PartAction.CHANGE)
    for name in before:
        if name not in after:
            yield PartChange(kind, name, PartAction.REMOVE, _REMOVED[kind])


def _queue_types(old: App, new: App) -> Iterator[PartChange]:
    """The types and expressions of a queue. Its settings have a plan of their own."""
    for name, queue in new.queues.items():
        known = old.queues.get(name)
        if known is None:
            continue  # the plan tells of the queue itself
        if structs.replace(known, settings=QueueChanges()) == structs.replace(queue, settings=QueueChanges()):
            continue
        stricter = queue.message_type and known.message_type != queue.message_type
        danger = "messages that were taken before may be refused" if stricter else ""
        yield PartChange("queue", name, PartAction.CHANGE, danger)
    for name in old.queues:
        if name not in new.queues:
            yield PartChange("queue", name, PartAction.REMOVE, "its messages are checked and worked on no longer")
