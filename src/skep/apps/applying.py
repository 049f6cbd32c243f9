"""Apply an app: first find all problems, then create and change its queues, then store the app.

An app is stored only if no other app was applied meanwhile, so two servers cannot both accept apps that declare the same
thing. When applying fails later, changed queues stay changed; applying again goes on from there.
"""

from __future__ import annotations

import asyncio

import msgspec
from msgspec import Struct

from skep.apps.catalogue import Catalogue
from skep.apps.conflicts import conflict_between
from skep.apps.differences import PartChange, part_changes
from skep.apps.tenants import known_settings
from skep.engine import Engine
from skep.errors import Code, SkepError
from skep.model import DEFAULT_TENANT, QueueKey
from skep.spec import Action, App, PlannedChange, SpecError, plan, secret_problems, to_document, validate
from skep.spec.problems import errors_of, render_all
from skep.spec.validate import dead_letter_queues

APPLY_TRIES = 10


class Application(Struct, frozen=True):
    """The outcome of applying an app, or of its dry run: ``revision`` is None while the app is not stored."""

    app: App
    revision: int | None
    changes: list[PlannedChange]
    parts: list[PartChange]

    @property
    def destructive(self) -> bool:
        """Whether it could lose messages, or refuse them."""
        return any(change.destructive for change in self.changes) or any(part.danger for part in self.parts)


async def apply(engine: Engine, catalogue: Catalogue, app: App, *, dry_run: bool = False) -> Application:
    """Apply an app, or only plan it (dry run); INVALID_SPEC when it may not be applied here."""
    await asyncio.to_thread(check_app, catalogue, app)  # a large one takes its time
    for _ in range(APPLY_TRIES):
        await catalogue.load()
        others = [known.app for known in catalogue.apps.values()]
        conflict = conflict_between(app, others)
        if conflict is not None:
            raise conflict
        before = catalogue.apps.get(app.name)
        planned = await _planned(engine, app, None if before is None else before.app)
        if dry_run:
            return planned
        for change in planned.changes:
            if change.action is not Action.LEAVE:
                await engine.configure_queue(QueueKey(change.queue), change.settings)
        try:
            record = await engine.records.put_app(app.name, document_of(app), expected=catalogue.revision)
        except SkepError as error:
            if error.code is not Code.STORE_BUSY:
                raise
            continue  # another app was applied meanwhile, perhaps one that declares the same
        await catalogue.load()
        return msgspec.structs.replace(planned, revision=record.revision)
    raise SkepError(Code.STORE_BUSY, "other apps are being applied over and over")


async def remove(engine: Engine, catalogue: Catalogue, name: str, *, dry_run: bool = False) -> Application:
    """Remove an app. Its queues and their messages stay. APP_NOT_FOUND when there is none."""
    await catalogue.load()
    known = catalogue.apps.get(name)
    removed = Application(App(name=name), None, [], part_changes(None if known is None else known.app, None))
    if dry_run:
        if known is None and all(record.name != name for record in await engine.records.apps()):
            raise no_app(name)
        return removed
    await engine.records.delete_app(name)
    await catalogue.load()
    return msgspec.structs.replace(removed, revision=catalogue.revision)


def no_app(name: str) -> SkepError:
    """The error of an unknown app."""
    return SkepError(Code.APP_NOT_FOUND, f"there is no app {name!r}", app=name)


ON_THE_SERVER = "a secret in the environment that the server is started with"
"""Names the server's environment: a user who applies an app would else look into the environment of their own shell."""


def check_app(catalogue: Catalogue, app: App) -> None:
    """INVALID_SPEC with all problems of an app, and with every secret that is missing or too short."""
    problems = errors_of(validate(app)) or secret_problems(app, catalogue.environment, expected=ON_THE_SERVER)
    if problems:
        raise SpecError(problems, render_all(problems, "", app.name or "the app"))


def document_of(app: App) -> bytes:
    """An app as the store keeps it."""
    return msgspec.json.encode(to_document(app))


async def _planned(engine: Engine, app: App, before: App | None) -> Application:
    """The plan for the queues that the app names, or named before. It touches no others."""
    names = {*app.queues, *dead_letter_queues(app).values()}
    if before is not None:
        names |= before.queues.keys()
    known = await known_settings(engine, sorted(names), DEFAULT_TENANT)
    return Application(app, None, plan(app, known), part_changes(before, app))
