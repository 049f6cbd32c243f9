"""The parser of the spec language: from a text to the IR, the spans of its parts, and all its problems."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from msgspec import Struct

from skep.spec.ir import App, Expressions, Schedule
from skep.spec.parse_entity import parse_entity
from skep.spec.parse_queue import parse_queue
from skep.spec.parse_webhook import parse_webhook
from skep.spec.problems import Path, Span, Spans, SpecProblem
from skep.spec.reading import Reading
from skep.spec.syntax import Block, Entry, read
from skep.spec.values import read_name, read_string

Part = TypeVar("Part")


class Parsed(Struct, frozen=True):
    """The result of parsing a text. ``app`` has the readable parts; use it only when there are no problems."""

    app: App
    spans: Spans
    problems: list[SpecProblem]


def parse_app(text: str) -> Parsed:
    """Parse the app of a text."""
    block, problems = read(text)
    reading = Reading(problems)
    apps = list(reading.entries(block, ("app",), "a spec", repeated=("app",)))
    for entry in apps[1:]:
        reading.problem(entry.span, "a spec has one app", "one app { … }")
    if apps:
        app = _app(reading, apps[0])
    else:
        app = App(name="")
        if not problems:
            reading.problem(Span(1, (1,)), "there is no app here", "app Name { … }")
    return Parsed(app, reading.spans, reading.problems)


def _app(reading: Reading, entry: Entry) -> App:
    name = reading.label(entry, (), ()) or ""
    block = reading.block(entry, (), labelled=True)
    app = App(name=name)
    if block is None:
        return app
    known = ("queue", "webhook", "entity", "schedule")
    for part in reading.entries(block, known, "an app", repeated=known):
        match part.name:
            case "queue":
                _declare(reading, part, app.queues, "queues", parse_queue)
            case "webhook":
                _declare(reading, part, app.webhooks, "webhooks", parse_webhook)
            case "entity":
                _declare(reading, part, app.entities, "entities", parse_entity)
            case _:
                _declare(reading, part, app.schedules, "schedules", _schedule)
    return app


def _declare(
    reading: Reading,
    entry: Entry,
    known: dict[str, Part],
    kind: str,
    parse: Callable[[Reading, Block, Path], Part],
) -> None:
    name = reading.label(entry, (kind,), known)
    if name is None:
        return
    block = reading.block(entry, (kind, name), labelled=True)
    if block is not None:
        known[name] = parse(reading, block, (kind, name))


def _schedule(reading: Reading, block: Block, path: Path) -> Schedule:
    texts: dict[str, str] = {}
    message: Expressions = {}
    noted = len(reading.problems)
    for entry in reading.entries(block, ("cron", "queue", "timezone", "message"), "a schedule"):
        at = (*path, entry.name)
        if entry.name == "message":
            inner = reading.block(entry, at)
            message = reading.expressions(inner, at, "the message") if inner else {}
        else:
            value = reading.value(entry, at, read_name if entry.name == "queue" else read_string)
            if value is not None:
                texts[entry.name] = value
    for needed in ("cron", "queue"):
        if needed not in texts and len(reading.problems) == noted:
            reading.problem(reading.spans[path], f"the schedule has no {needed}", f"{needed}: and a value")
    return Schedule(
        cron=texts.get("cron", ""), queue=texts.get("queue", ""), message=message, timezone=texts.get("timezone", "UTC")
    )
