"""A compiled app: the validators and expressions of its queues are compiled once, here."""

from __future__ import annotations

from msgspec import Struct

from skep.clock import Instant
from skep.model import QueueChanges
from skep.spec import (
    App,
    Expression,
    FieldMapping,
    Validator,
    compile_expression,
    compile_mapping,
    compile_validator,
    settings_of,
)
from skep.spec.ir import IdempotencySource, Queue, Schedule
from skep.spec.validate import dead_letter_queues
from skep.spec.variables import SCHEDULE, of_queue


class DeclaredQueue(Struct, frozen=True, eq=False):
    """A queue of an app. ``settings`` is what the spec says and what follows from it.

    ``validator`` is None where any JSON will do, as in a queue that holds dead letters: they are kept as they were pushed.
    ``key`` makes the partition of a message that was pushed without one, ``repeat_key`` the transaction id of each.
    """

    app: str
    name: str
    spec: Queue
    settings: QueueChanges
    dead_letter_queue: str | None
    validator: Validator | None
    key: Expression | None
    repeat_key: Expression | None
    all_tenants: bool

    @property
    def checks(self) -> bool:
        """Whether its messages are looked at when they are pushed."""
        return self.validator is not None or self.key is not None or self.repeat_key is not None


class DeclaredSchedule(Struct, frozen=True, eq=False):
    """A schedule of an app, and what makes its message."""

    app: str
    name: str
    spec: Schedule
    message: FieldMapping


class CompiledApp(Struct, frozen=True, eq=False):
    """An applied app. ``all_tenants`` says that it is every tenant's: one of its webhooks takes a tenant."""

    app: App
    revision: int
    applied_at: Instant
    queues: dict[str, DeclaredQueue]
    schedules: dict[str, DeclaredSchedule]
    all_tenants: bool

    @property
    def name(self) -> str:
        """The name of the app."""
        return self.app.name


def compile_app(app: App, revision: int, applied_at: Instant) -> CompiledApp:
    """Compile a valid app. An invalid one fails with an error of one of its parts."""
    all_tenants = any(webhook.tenant is not None for webhook in app.webhooks.values())
    letters = dead_letter_queues(app)
    holders = frozenset(letters.values())
    return CompiledApp(
        app=app,
        revision=revision,
        applied_at=applied_at,
        queues={
            name: _queue(app, name, letters.get(name), name in holders, all_tenants) for name in app.queues
        },
        schedules={name: _schedule(app, name) for name in app.schedules},
        all_tenants=all_tenants,
    )  # fmt: skip


def _queue(app: App, name: str, dead_letter_queue: str | None, is_holder: bool, all_tenants: bool) -> DeclaredQueue:
    queue = app.queues[name]
    variables = of_queue(queue)
    repeats = queue.idempotency
    by_key = repeats is not None and repeats.source is IdempotencySource.KEY
    return DeclaredQueue(
        app=app.name,
        name=name,
        spec=queue,
        settings=settings_of(app, name),
        dead_letter_queue=dead_letter_queue,
        validator=compile_validator(queue.message_type, queue.extra_fields)
        if queue.message_type and not is_holder
        else None,
        key=compile_expression(queue.key, variables) if queue.key is not None and not is_holder else None,
        repeat_key=compile_expression(repeats.value, variables) if repeats and by_key and not is_holder else None,
        all_tenants=all_tenants,
    )


def _schedule(app: App, name: str) -> DeclaredSchedule:
    schedule = app.schedules[name]
    target = app.queues[schedule.queue].message_type or None
    return DeclaredSchedule(app.name, name, schedule, compile_mapping(schedule.message, SCHEDULE, target))
