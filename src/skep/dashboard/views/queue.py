"""Queue: one queue with its groups, partitions and settings; and the actions on it: publish, seek, release, clear."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any, NamedTuple

import msgspec

from skep.dashboard.charts import charts, since
from skep.dashboard.payloads import one_line
from skep.dashboard.site import Action, Fields, InvalidFormError, Page, Site, in_form
from skep.engine.queue_settings import parse_changes
from skep.errors import Code, SkepError
from skep.http.auditing import note_settings, settings_before
from skep.http.producer import stamped_messages
from skep.http.request import parameters
from skep.http.request.call import Answer, Call
from skep.http.request.permission import READ, READ_TO_CHANGE
from skep.http.routes.groups import pending_after, reached, start_of
from skep.http.routes.pace import pace_of
from skep.http.routes.queues import check_burial
from skep.http.views import held_by
from skep.model import (
    DEAD_LETTER_SUFFIX,
    DEFAULT_PARTITION,
    NO_DEAD_LETTER_QUEUE,
    QUEUE_MODE_GROUP,
    ClearScope,
    GroupStats,
    MessageFilter,
    NewMessage,
    PushResult,
    Queue,
    QueueKey,
    QueueStats,
    Start,
    StartMode,
)
from skep.model.key import Verb
from skep.model.queue_settings import SETTINGS
from skep.wire.groups import SeekRequest, SeekTo
from skep.wire.times import to_datetime

LEASES = 1_000
"""Live leases that are looked through for those of the partitions on the page."""
PARTITIONS = 25
MESSAGES = 8
_IN_FORM = [setting for setting in SETTINGS.values() if setting.name != "paused"]  # which has buttons of its own


def key_of(call: Call) -> QueueKey:
    """The queue that a path names."""
    return call.queue(call.path("queue"))


def key_to_change(call: Call) -> QueueKey:
    """The queue that a path names, for a page that is there only to change it."""
    key = key_of(call)
    call.check(key, Verb.ADMIN)
    return key


async def queue(site: Site, call: Call) -> Answer:
    """A queue at a look: figures, charts, groups, partitions, its newest messages."""
    links, key = site.links(call), key_of(call)
    found = await site.engine.get_queue(key)
    stats = await site.engine.browse.queue_stats(key)
    groups = worst_first(stats.groups)
    group = links.query.get("group") or (groups[0].group if groups else QUEUE_MODE_GROUP)
    after = links.query.get("after", "")
    partitions, leases, moments, newest = await asyncio.gather(
        site.engine.browse.partition_stats(key, group, after=after, limit=PARTITIONS + 1),
        site.engine.browse.leases(key.tenant, key=key, limit=LEASES),
        site.engine.history.figures_of(
            [key.name], since(site.engine.now(), links.query.get("range", "1h")), key.tenant
        ),
        site.engine.browse.messages(MessageFilter(queue=key, descending=True, limit=MESSAGES, preview_bytes=400)),
    )
    told, times = await pace_of(site.engine, stats, paused=found.settings.paused)
    return site.page(
        call, "queue.html", pace=told, times=times, screen="queues", queue=found, stats=stats, groups=groups, group=group, range=links.query.get("range", "1h"),
        partitions=partitions[:PARTITIONS], more_partitions=len(partitions) > PARTITIONS, after=after,
        account=next((one for one in stats.groups if one.group == group), None), seen_pending=sum(one.pending for one in partitions[:PARTITIONS]),
        charts=charts(moments[0]), dead_letter_queue=dead_letter_queue(found),
        holders={one.partition: one for one in leases if one.group == group},
        held={one.group: held_by(one, stats) for one in stats.groups},
        newest=[(message, one_line(message.payload, message.content_type)) for message in newest.messages],
    )  # fmt: skip


def worst_first(groups: Sequence[GroupStats]) -> list[GroupStats]:
    """Groups from the one that is furthest behind; those that nobody uses any more come last."""
    return sorted(groups, key=lambda one: (one.idle, -one.lag_seconds, -one.lag_messages, one.group))


def dead_letter_queue(queue: Queue) -> str | None:
    """The queue that gets its dead letters; None when they are discarded, or it holds dead letters itself."""
    name = queue.settings.dead_letter_queue
    return (
        None
        if name == NO_DEAD_LETTER_QUEUE or queue.holds_dead_letters
        else name or queue.key.name + DEAD_LETTER_SUFFIX
    )


async def settings(
    site: Site, call: Call, typed: Mapping[str, str] | None = None, problem: SkepError | None = None
) -> Answer:
    """A queue's settings as a form and as a spec; after a mistake with the ``typed`` values and the problem."""
    found = await site.engine.get_queue(key_of(call))
    rows = [(setting, getattr(found.settings, setting.name)) for setting in _IN_FORM]
    changed = {setting.name: value for setting, value in rows if value != setting.default}
    spec = msgspec.json.format(msgspec.json.encode(changed), indent=2).decode()
    return site.page(
        call, "queue_settings.html", HTTPStatus.OK if problem is None else HTTPStatus.UNPROCESSABLE_ENTITY, screen="queues",
        queue=found, rows=rows, changed=changed, spec=spec, typed=typed or {}, problem=problem,
    )  # fmt: skip


async def change_settings(site: Site, call: Call, fields: Fields) -> str:
    """Change the settings that differ from what the form was filled with."""
    key = key_of(call)
    typed = {
        setting.name: text
        for setting in _IN_FORM
        if (text := fields.get(setting.name).strip()) != fields.get(f"was-{setting.name}")
    }
    changes: dict[str, Any] = {name: _setting(text) for name, text in typed.items()}

    async def change() -> None:
        parsed = parse_changes(changes)
        check_burial(call, parsed)
        earlier = await settings_before(site.engine, key)
        note_settings(call, earlier, (await site.engine.update_queue(key, parsed)).settings)

    if changes:
        await in_form(change(), lambda error: settings(site, call, typed, error))
    return site.links(call).url("queues", key.name, "settings", notice="changed", number=len(changes))


def _setting(text: str) -> Any:
    """A setting as someone writes it: a number, yes or no, or a name; nothing at all is none."""
    if text == "":
        return None
    if text in ("true", "false"):
        return text == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


async def publish_form(
    site: Site, call: Call, fields: Fields | None = None, problem: SkepError | None = None
) -> Answer:
    """A form for a test message; after a mistake with the typed ``fields`` and the problem."""
    key = key_to_change(call)
    call.check(key, Verb.PUSH)
    found = await site.engine.get_queue(key)
    typed = (
        Fields([("partition", DEFAULT_PARTITION), ("payload", '{\n  "test": true\n}')]) if fields is None else fields
    )
    return site.page(
        call, "queue_publish.html", HTTPStatus.OK if problem is None else HTTPStatus.UNPROCESSABLE_ENTITY, screen="queues",
        queue=found, partition=typed.get("partition"), txid=typed.get("txid"), payload=typed.get("payload"), problem=problem,
    )  # fmt: skip


async def publish(site: Site, call: Call, fields: Fields) -> str:
    """Push a test message."""
    key = key_of(call)
    call.check(key, Verb.PUSH)
    await site.engine.get_queue(key)
    payload = fields.get("payload").encode()
    headers = {"skep-origin": "dashboard"}
    message = NewMessage(
        key, payload, partition=fields.get("partition") or DEFAULT_PARTITION, transaction_id=fields.get("txid") or None,
        headers=msgspec.json.encode(headers),
    )  # fmt: skip
    result = await in_form(_pushed(site, call, message), lambda error: publish_form(site, call, fields, error))
    call.note(count=0 if result.status == "duplicate" else 1)
    notice = "duplicate" if result.status == "duplicate" else "published"
    return site.links(call).url("queues", key.name, notice=notice, number=result.seq)


async def _pushed(site: Site, call: Call, message: NewMessage) -> PushResult:
    [result] = (await site.engine.push(stamped_messages([message], call.principal))).results
    if result.code is not None:
        raise SkepError(result.code, result.reason or "the message was refused")
    return result


class SeekEffect(NamedTuple):
    """The effect of a seek: its position, and how many messages follow, come again and are skipped."""

    to_seq: int
    pending: int
    again: int
    skipped: int


def effect(stats: QueueStats, before: GroupStats | None, to_seq: int) -> SeekEffect:
    """The effect of a seek behind ``to_seq``."""
    at = to_seq if before is None else before.progress_seq
    return SeekEffect(to_seq, pending_after(stats, to_seq), max(0, at - to_seq), max(0, to_seq - at))


async def seek_form(site: Site, call: Call, undeleted: SkepError | None = None) -> Answer:
    """The form to move a group, with the effect of each target; of a time or seq once it is typed."""
    links, key, group = site.links(call), key_to_change(call), call.path("group")
    found = await site.engine.get_queue(key)
    stats = await site.engine.browse.queue_stats(key)
    before = next((one for one in stats.groups if one.group == group), None)
    preview, problem, start = None, None, None
    if "to" in links.query:
        try:
            start = start_of(_seek_request(key.name, links.query))
        except SkepError as error:
            problem = error
    if start is not None and start.mode in (StartMode.TIME, StartMode.SEQ):
        preview = effect(stats, before, await reached(site.engine, key, stats, start))
    beginning, end = [
        effect(stats, before, await reached(site.engine, key, stats, Start(mode)))
        for mode in (StartMode.ALL, StartMode.NEW)
    ]
    return site.page(
        call, "queue_seek.html", HTTPStatus.OK if undeleted is None else HTTPStatus.UNPROCESSABLE_ENTITY, screen="queues",
        queue=found, group=group, stats=stats, before=before, preview=preview, problem=problem, beginning=beginning, end=end,
        to=links.query.get("to", ""), time=links.query.get("time", ""), seq=links.query.get("seq", ""), undeleted=undeleted,
    )  # fmt: skip


async def seek(site: Site, call: Call, fields: Fields) -> str:
    """Move a group."""
    key, group = key_of(call), call.path("group")
    said = {name: fields.get(name) for name in ("to", "time", "seq") if fields.get(name)}
    stats = await site.engine.browse.queue_stats(key)
    before = next((f"seq {one.progress_seq}" for one in stats.groups if one.group == group), "no group")
    moved = await site.engine.groups.seek(key, group, start_of(_seek_request(key.name, said)))
    call.note(count=moved.lag_messages, before=before, after=f"seq {moved.progress_seq}")
    return site.links(call).url("queues", key.name, notice="moved", number=moved.lag_messages)


def _seek_request(queue: str, said: dict[str, str]) -> SeekRequest:
    to = parameters.choice(said, "to", SeekTo) or SeekTo.END
    time = said.get("time")
    if time and len(time) == len("2026-01-31T12:00"):
        time += ":00"
    wanted = parameters.time({"time": time if time.endswith("Z") else time + "Z"}, "time") if time else None
    return SeekRequest(
        queue, to, time=None if wanted is None or to is not SeekTo.TIME else to_datetime(wanted),
        seq=parameters.position(said, "seq") if to is SeekTo.SEQ and said.get("seq") else None,
    )  # fmt: skip


async def release(site: Site, call: Call, fields: Fields) -> str:
    """End the leases of a partition."""
    key, group = key_of(call), fields.get("group") or QUEUE_MODE_GROUP
    ended = await site.engine.groups.end_leases(key, group, fields.get("partition"))
    call.note(target=f"partition {fields.get('partition')} of queue {key.name}, group {group}", count=ended)
    return site.links(call).url(
        "queues", key.name, notice="released", number=ended, group=group, after=fields.get("after")
    )


async def clear_form(site: Site, call: Call) -> Answer:
    """The messages that clearing would delete, and a field for the queue's name."""
    links, key = site.links(call), key_to_change(call)
    found = await site.engine.get_queue(key)
    scopes = {scope: await site.engine.clear(key, scope, dry_run=True) for scope in ClearScope}
    scope = parameters.choice(links.query, "scope", ClearScope) or ClearScope.PENDING
    return site.page(
        call, "queue_clear.html", screen="queues", queue=found, scopes=scopes, scope=scope,
        is_wrong=links.query.get("wrong") == "yes", has_grown=links.query.get("wrong") == "more",
    )  # fmt: skip


async def clear(site: Site, call: Call, fields: Fields) -> str:
    """Delete messages, when the queue's name was typed."""
    links, key = site.links(call), key_of(call)
    scope = parameters.choice({"scope": fields.get("scope")}, "scope", ClearScope) or ClearScope.PENDING
    if fields.get("confirm") != key.name:
        call.note(declined=True)
        return links.url("queues", key.name, "clear", scope=scope, wrong="yes")
    would = await site.engine.clear(key, scope, dry_run=True)
    confirmed = (
        parameters.position({"number": fields.get(f"number-{scope}")}, "number")
        if fields.get(f"number-{scope}")
        else None
    )
    if confirmed is not None and would.pending + would.scheduled > confirmed:
        return links.url("queues", key.name, "clear", scope=scope, wrong="more")
    cleared = await site.engine.clear(key, scope)
    call.note(count=cleared.pending + cleared.scheduled)
    return links.url("queues", key.name, notice="cleared", number=cleared.pending + cleared.scheduled)


async def delete_group(site: Site, call: Call, fields: Fields) -> str:
    """Delete a group, when its name was typed."""
    links, key, group = site.links(call), key_of(call), call.path("group")
    if fields.get("confirm") != group:
        call.note(declined=True)
        error = SkepError(Code.INVALID_REQUEST, "type the group's name exactly to delete it")
        raise InvalidFormError(error, await seek_form(site, call, error))
    if not await site.engine.groups.delete(key, group):
        raise SkepError(Code.GROUP_NOT_FOUND, f"there is no group {group!r} here")
    return links.url("queues", key.name, notice="deleted")


PAGES: list[Page] = [
    Page("/queues/{queue}", ("group", "after", "range"), queue, READ),
    Page("/queues/{queue}/settings", (), settings, READ),
    Page("/queues/{queue}/publish", (), publish_form, READ_TO_CHANGE),
    Page("/queues/{queue}/clear", ("scope", "wrong"), clear_form, READ_TO_CHANGE),
    Page("/queues/{queue}/groups/{group}/seek", ("to", "time", "seq"), seek_form, READ_TO_CHANGE),
]
ACTIONS: list[tuple[str, Action]] = [
    ("/queues/{queue}/settings", change_settings),
    ("/queues/{queue}/publish", publish),
    ("/queues/{queue}/clear", clear),
    ("/queues/{queue}/release", release),
    ("/queues/{queue}/groups/{group}/seek", seek),
    ("/queues/{queue}/groups/{group}/delete", delete_group),
]
