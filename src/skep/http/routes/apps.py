"""`/api/v1/apps…`: the applied specs. They belong to the server, not to a tenant."""

from __future__ import annotations

import asyncio

import msgspec
from msgspec import Raw

from skep.apps.applying import Application, apply, no_app, remove
from skep.apps.catalogue import Catalogue
from skep.apps.differences import PartChange
from skep.errors import Code, SkepError
from skep.http.request import parameters
from skep.http.request.call import Answer, Call, json_answer
from skep.http.request.permission import ADMIN_SERVER, READ_SERVER
from skep.http.request.route import Parameter
from skep.http.routes.route_table import RouteTable, Served
from skep.model.record import AppRecord
from skep.spec import Action, App, PlannedChange, SpecError, from_document, from_json
from skep.wire.apps import (
    AppDetail,
    AppDocument,
    Applied,
    AppRemoved,
    AppsResponse,
    AppSummary,
    ChangedSetting,
    PartView,
    QueueChange,
)
from skep.wire.times import to_datetime

DRY_RUN = Parameter("dryRun", bool, "only say what would happen")

_decode_document = msgspec.json.Decoder(AppDocument)


ROUTES: RouteTable[Served] = RouteTable("Apps")


@ROUTES.route("GET", "/api/v1/apps", READ_SERVER, "List applied apps by name", answers={200: AppsResponse})
async def list_apps(served: Served, _: Call) -> Answer:
    await served.catalogue.load()
    records = await served.engine.records.apps()
    told = [_summary(record, served.catalogue) for record in records]
    return json_answer(AppsResponse(told, served.catalogue.revision))


@ROUTES.route("GET", "/api/v1/apps/{app}", READ_SERVER, "Show an app with its whole spec", answers={200: AppDetail})
async def show(served: Served, call: Call) -> Answer:
    name = call.path("app")
    await served.catalogue.load()
    record = next((record for record in await served.engine.records.apps() if record.name == name), None)
    if record is None:
        raise no_app(name)
    return json_answer(
        AppDetail(
            record.name, record.revision, to_datetime(record.applied_at), _is_usable(record, served.catalogue),
            Raw(record.document),
        )
    )  # fmt: skip


@ROUTES.route(
    "PUT", "/api/v1/apps/{app}", ADMIN_SERVER,
    "Apply an app: make and change its queues, and take in what it declares", request=AppDocument,
    parameters=(DRY_RUN,), answers={200: Applied},
    description="422 with INVALID_SPEC and everything that is wrong: the spec itself, secrets that the server's"
    " environment lacks, and what another app declares already. Nothing is deleted.",
    example={"name": "Shop", "queues": {"Orders": {"message_type": {"customer": "string", "cents": "int"}}}},
)  # fmt: skip
async def put(served: Served, call: Call) -> Answer:
    name = call.path("app")
    document = await call.json(_decode_document)
    if document.name != name:
        raise SkepError(Code.INVALID_REQUEST, f"the path names {name[:100]!r}, the document {document.name[:100]!r}")
    app = await asyncio.to_thread(from_document, msgspec.to_builtins(document), name)
    dry_run = parameters.flag(call.query, "dryRun")
    call.note(dry_run=dry_run)
    applied = await apply(served.engine, served.catalogue, app, dry_run=dry_run)
    call.note(count=sum(change.action is not Action.LEAVE for change in applied.changes), dry_run=dry_run)
    return json_answer(_applied(applied, dry_run))


@ROUTES.route(
    "DELETE", "/api/v1/apps/{app}", ADMIN_SERVER, "Forget an app; its queues stay, with all they hold",
    parameters=(DRY_RUN,), answers={200: AppRemoved},
)  # fmt: skip
async def delete(served: Served, call: Call) -> Answer:
    dry_run = parameters.flag(call.query, "dryRun")
    call.note(dry_run=dry_run)
    removed = await remove(served.engine, served.catalogue, call.path("app"), dry_run=dry_run)
    return json_answer(AppRemoved(removed.app.name, dry_run, _parts(removed.parts)))


def _is_usable(record: AppRecord, catalogue: Catalogue) -> bool:
    known = catalogue.apps.get(record.name)
    return known is not None and known.revision == record.revision


def _summary(record: AppRecord, catalogue: Catalogue) -> AppSummary:
    known = catalogue.apps.get(record.name)
    usable = known is not None and known.revision == record.revision
    app = known.app if known is not None and usable else _read(record)
    return AppSummary(
        record.name, record.revision, to_datetime(record.applied_at), usable, list(app.queues), list(app.webhooks),
        list(app.entities), list(app.schedules),
    )  # fmt: skip


def _read(record: AppRecord) -> App:
    """The readable part of an app that cannot be used."""
    try:
        return from_json(record.document, record.name)
    except SpecError:
        return App(name=record.name)


def _applied(done: Application, dry_run: bool) -> Applied:
    changes = [_queue_change(change) for change in done.changes]
    return Applied(done.app.name, done.revision, dry_run, done.destructive, changes, _parts(done.parts))


def _queue_change(change: PlannedChange) -> QueueChange:
    settings = [
        ChangedSetting(one.setting, _plain(one.before), _plain(one.after), one.danger) for one in change.changes
    ]
    return QueueChange(change.action, change.queue, change.settings, settings, change.destructive)


def _plain(value: object) -> str | float | bool | None:
    return value if value is None or isinstance(value, bool | int | float) else str(value)


def _parts(parts: list[PartChange]) -> list[PartView]:
    return [PartView(part.kind, part.name, part.action, part.danger) for part in parts]
