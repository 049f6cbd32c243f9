"""The validator of the IR: finds all problems of a spec beyond its grammar in one pass, before anything runs.

It knows no server: `skep.spec.plan` compares an app with the queues that exist.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import NamedTuple
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError
from msgspec import UNSET

from skep.model import DEAD_LETTER_SUFFIX, NO_DEAD_LETTER_QUEUE, Ordering
from skep.spec.checking import NAME_CHARACTERS, Checking
from skep.spec.endpoint import is_address
from skep.spec.ir import (
    App,
    CommandCall,
    Deliver,
    ExtraFields,
    IdempotencySource,
    OnInvalid,
    Queue,
    RateLimit,
    Schedule,
)
from skep.spec.problems import Path, Spans, SpecProblem
from skep.spec.ranges import check_ranges
from skep.spec.types import Type
from skep.spec.validate_entity import check_entity
from skep.spec.validate_webhook import check_webhook
from skep.spec.variables import SCHEDULE, of_queue, of_then

CONCURRENCY_MAX = 1_000
BATCH_MAX = 10_000
RATE_COUNT_MAX = 1_000_000
RATE_PER_SECONDS_MAX = 86_400.0
DELIVER_TIMEOUT_SECONDS_MAX = 300.0
CYCLE_SHOWN = 12
CRON_FIELDS = 5

_SECRET_HEADER = re.compile(
    r"authori[sz]ation|cookie|token|secret|password|credential|api-?key|signature", re.IGNORECASE
)
"""Headers whose values are nearly always secrets."""


def validate(app: App, spans: Spans | None = None) -> list[SpecProblem]:
    """All problems of an app, including warnings; with spans, each has its line and column."""
    checking = Checking(app, spans or {})
    if not app.name:
        checking.problem(("name",), "the app has no name", "a name", absence=True)
    for name, queue in app.queues.items():
        _check_queue(checking, name, queue, ("queues", name))
    _check_dead_letters(checking)
    _check_cycles(checking)
    for name, webhook in app.webhooks.items():
        check_webhook(checking, name, webhook, ("webhooks", name), check_call)
    for name, entity in app.entities.items():
        check_entity(checking, name, entity, ("entities", name))
    for name, schedule in app.schedules.items():
        _check_schedule(checking, name, schedule, ("schedules", name))
    return list({(problem.path, problem.column, problem.message): problem for problem in checking.problems}.values())


def _check_queue(checking: Checking, name: str, queue: Queue, path: Path) -> None:
    checking.fit_name(path, "a queue", name)
    checking.fields((*path, "message_type"), queue.message_type)
    check_ranges(checking, queue.settings, (*path, "settings"))
    variables = of_queue(queue)
    if queue.key is not None:
        checking.key((*path, "key"), queue.key, variables)
        if queue.settings.ordering not in (UNSET, Ordering.PER_KEY):
            checking.warning(
                (*path, "key"), f"a key means nothing when ordering is {queue.settings.ordering}", "per_key"
            )
    _check_queue_idempotency(checking, queue, path, variables)
    for limit, most in (("concurrency", CONCURRENCY_MAX), ("batch", BATCH_MAX)):
        value = getattr(queue, limit)
        if value is not None:
            checking.within((*path, limit), limit, value, 1, most)
    if not queue.message_type:
        if queue.extra_fields is not ExtraFields.REFUSE:
            checking.warning((*path, "extra_fields"), "extra_fields means nothing without a message_type")
        if queue.on_invalid is not OnInvalid.REFUSE:
            checking.warning((*path, "on_invalid"), "on_invalid means nothing without a message_type")
    _check_work(checking, queue, path, variables)


def _check_queue_idempotency(checking: Checking, queue: Queue, path: Path, variables: Mapping[str, Type]) -> None:
    idempotency = queue.idempotency
    if idempotency is None or idempotency.source is IdempotencySource.NONE:
        return
    at = (*path, "idempotency")
    if idempotency.source is not IdempotencySource.KEY or not idempotency.value:
        checking.problem(at, "a queue tells repeats by an expression", "idempotency { key: … }")
        return
    checking.key((*at, "value"), idempotency.value, variables)
    checking.duration((*at, "window_seconds"), "the window", idempotency.window_seconds)


def _check_work(checking: Checking, queue: Queue, path: Path, variables: dict[str, Type]) -> None:
    if queue.map_to is not None and queue.deliver is not None:
        checking.problem((*path, "deliver"), "a message is mapped to a command or delivered, not both", "one of them")
    if queue.map_to is not None:
        check_call(checking, queue.map_to, (*path, "map_to"), variables)
    if queue.deliver is not None:
        _check_deliver(checking, queue.deliver, (*path, "deliver"))
    if queue.rate_limit is not None:
        _check_rate_limit(checking, queue.rate_limit, (*path, "rate_limit"), variables)
    for name, check in queue.checks.items():
        checking.identifier((*path, "checks", name), "a check", name)
        checking.condition((*path, "checks", name, "holds"), check.holds, variables)
    variables = of_then(queue)
    for index, then in enumerate(queue.then):
        at = (*path, "then", index)
        wanted = checking.target(at, then.queue)
        checking.condition((*at, "when"), then.when, variables)
        checking.mapping((*at, "fields"), then.fields, variables, wanted, f"the message for {then.queue}")


def check_call(checking: Checking, call: CommandCall, path: Path, variables: Mapping[str, Type]) -> None:
    """Check a call of a command with its input. An undeclared entity may belong to a function, so only its name is checked."""
    checking.identifier(path, "an entity", call.entity)
    checking.identifier(path, "a command", call.command)
    entity = checking.app.entities.get(call.entity)
    wanted = None
    if entity is not None:
        command = entity.commands.get(call.command)
        if command is None:
            checking.unknown(path, f"command of {call.entity}", call.command, entity.commands)
        else:
            wanted = command.input
    elif checking.app.entities:
        checking.warning(
            path, f"the entity {call.entity!r} is not declared", f"a function for {call.entity}.{call.command}"
        )
    checking.mapping((*path, "fields"), call.fields, variables, wanted, f"{call.entity}.{call.command}")


def _check_deliver(checking: Checking, deliver: Deliver, path: Path) -> None:
    if deliver.url_env is not None:
        checking.variable((*path, "url_env"), deliver.url_env)
        if deliver.url:
            checking.problem((*path, "url_env"), "an address is written out, or in a variable, not both", "one of them")
    elif not is_address(deliver.url):
        checking.problem((*path, "url"), f"{deliver.url[:60]!r} is not an address", "https://host/path")
    elif urlsplit(deliver.url).username is not None:
        checking.warning((*path, "url"), "a password stands in the spec", 'deliver: env "VARIABLE"')
    for name, value in deliver.headers.items():
        checking.header((*path, "headers", name), name)
        if not value.isprintable():
            checking.problem((*path, "headers", name), "the header's value has control characters", "plain text")
        if _SECRET_HEADER.search(name):
            wanted = f'headers_env {{ "{name}": "VARIABLE" }}'
            checking.warning((*path, "headers", name), "what looks like a secret stands in the spec", wanted)
    given = {name.lower() for name in deliver.headers}
    for name, variable in deliver.headers_env.items():
        checking.header((*path, "headers_env", name), name)
        checking.variable((*path, "headers_env", name), variable)
        if name.lower() in given:
            checking.problem((*path, "headers_env", name), f"there are two headers {name!r}", "one of them")
    checking.secrets(path, deliver.secret_env, needed=False)
    checking.duration((*path, "timeout_seconds"), "the timeout", deliver.timeout_seconds, DELIVER_TIMEOUT_SECONDS_MAX)


def _check_rate_limit(checking: Checking, limit: RateLimit, path: Path, variables: Mapping[str, Type]) -> None:
    checking.within((*path, "count"), "count", limit.count, 1, RATE_COUNT_MAX)
    checking.duration((*path, "per_seconds"), "per", limit.per_seconds, RATE_PER_SECONDS_MAX)
    if limit.key is not None:
        checking.key((*path, "key"), limit.key, variables)


def dead_letter_queues(app: App) -> dict[str, str]:
    """The dead-letter queue of each queue that has one, named or by default."""
    found: dict[str, str] = {}
    for name, queue in app.queues.items():
        given = queue.settings.dead_letter_queue
        if isinstance(given, str) and given != NO_DEAD_LETTER_QUEUE:
            found[name] = given
    named = set(found.values())
    for name, queue in app.queues.items():
        if not isinstance(queue.settings.dead_letter_queue, str) and name not in named:
            found[name] = name + DEAD_LETTER_SUFFIX
    return found


def _check_dead_letters(checking: Checking) -> None:
    queues = checking.app.queues
    targets = dead_letter_queues(checking.app)
    users: dict[str, str] = {}
    for name, target in targets.items():
        users.setdefault(target, name)
    for name, target in targets.items():
        path = ("queues", name, "settings", "dead_letter_queue")
        if target == name:
            checking.problem(path, f"the queue {name!r} cannot be its own dead-letter queue", "another queue, or none")
        elif isinstance(queues[name].settings.dead_letter_queue, str) and name in users:
            used = f"{name!r} is the dead-letter queue of {users[name]!r}, so it cannot have one itself"
            checking.problem(path, used, "none")
        if target not in queues:
            checking.fit_name(path, "a dead-letter queue", target)
    for name, queue in queues.items():
        if queue.on_invalid is OnInvalid.QUARANTINE and queue.settings.dead_letter_queue == NO_DEAD_LETTER_QUEUE:
            checking.problem(
                ("queues", name, "on_invalid"), "there is no dead-letter queue for the quarantine", "refuse"
            )
        if len(name) + len(DEAD_LETTER_SUFFIX) > NAME_CHARACTERS and targets.get(name) == name + DEAD_LETTER_SUFFIX:
            checking.problem(("queues", name), "the name leaves no room for that of the dead-letter queue")


def _check_cycles(checking: Checking) -> None:
    """Refuse circles of `then`: a message would go round for ever."""
    queues = checking.app.queues
    finished: set[str] = set()
    for start in queues:
        trail: dict[str, Iterator[str]] = {}
        following: str | None = start
        while True:
            if following is not None and following in trail:
                names = list(trail)
                _note_cycle(checking, [*names[names.index(following) :], following])
            elif following is not None and following in queues and following not in finished:
                trail[following] = iter([then.queue for then in queues[following].then])
            if not trail:
                break
            following = next(trail[next(reversed(trail))], None)
            if following is None:
                finished.add(trail.popitem()[0])


def _note_cycle(checking: Checking, cycle: list[str]) -> None:
    last = cycle[-2]
    shown = cycle if len(cycle) <= CYCLE_SHOWN else [*cycle[: CYCLE_SHOWN - 2], "…", cycle[-1]]
    index = next(index for index, then in enumerate(checking.app.queues[last].then) if then.queue == cycle[-1])
    path = ("queues", last, "then", index, "queue")
    checking.problem(path, f"messages would go round for ever: {' → '.join(shown)}", "a queue outside of this circle")


class TimeProblem(NamedTuple):
    """What is wrong with a cron expression or a time zone, and what would be right."""

    wrong: str
    cure: str


def cron_problem(cron: str) -> TimeProblem | None:
    """The problem of a cron expression, if it has one."""
    try:
        if len(cron.split()) != CRON_FIELDS:  # the library also takes seconds
            raise CronSimError
        next(CronSim(cron, datetime(2026, 1, 1, tzinfo=UTC)))
    except CronSimError:
        return TimeProblem(
            f"{cron[:60]!r} is not a cron expression", "minute hour day month weekday, as in 30 3 * * 1-5"
        )
    except StopIteration:
        return TimeProblem(f"{cron[:60]!r} never comes", "a day that exists")
    return None


def timezone_problem(name: str) -> TimeProblem | None:
    """The problem of a time zone's name, if it has one."""
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return TimeProblem(f"there is no time zone {name[:60]!r}", "Europe/Berlin, say")
    return None


def _check_schedule(checking: Checking, name: str, schedule: Schedule, path: Path) -> None:
    checking.fit_name(path, "a schedule", name)
    if (problem := cron_problem(schedule.cron)) is not None:
        checking.problem((*path, "cron"), problem.wrong, problem.cure)
    if (problem := timezone_problem(schedule.timezone)) is not None:
        checking.problem((*path, "timezone"), problem.wrong, problem.cure)
    wanted = checking.target(path, schedule.queue)
    checking.mapping((*path, "message"), schedule.message, SCHEDULE, wanted, f"the message for {schedule.queue}")
