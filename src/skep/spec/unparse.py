"""The IR as entries of the spec language, ready to be printed: the inverse of `skep.spec.parser`."""

from __future__ import annotations

from msgspec import UNSET

from skep.spec.ir import (
    App,
    Check,
    Command,
    CommandCall,
    Deliver,
    Emit,
    Entity,
    Expressions,
    Fields,
    Idempotency,
    IdempotencySource,
    Queue,
    RateLimit,
    Schedule,
    Scheme,
    Tenant,
    Then,
    Verify,
    Webhook,
)
from skep.spec.parse_queue import OF_DELIVERY, OF_QUEUE, OF_RETENTION
from skep.spec.problems import Span
from skep.spec.scanning import Scanner, stripped
from skep.spec.syntax import Block, Entry, RawText
from skep.spec.types import print_field
from skep.spec.values import print_duration, print_name, print_number, quoted

_NOWHERE = Span(0, (0,))
_DEFAULTS = (Queue(), Verify(scheme=Scheme.HMAC), Idempotency(source=IdempotencySource.BODY), Deliver(url=""))


def unparse(app: App) -> Entry:
    """An app as one entry."""
    entries = [
        *(_labelled("queue", name, _queue(queue)) for name, queue in app.queues.items()),
        *(_labelled("webhook", name, _webhook(webhook)) for name, webhook in app.webhooks.items()),
        *(_labelled("entity", name, _entity(entity)) for name, entity in app.entities.items()),
        *(_labelled("schedule", name, _schedule(schedule)) for name, schedule in app.schedules.items()),
    ]
    return _labelled("app", app.name, _spaced(entries))


def _value(name: str, text: str, entries: list[Entry] | None = None) -> Entry:
    block = Block(entries) if entries is not None else None
    return Entry(name=name, span=_NOWHERE, colon=True, value=RawText(text, _NOWHERE), block=block)


def _block(name: str, entries: list[Entry], label: str | None = None) -> Entry:
    value = RawText(label, _NOWHERE) if label is not None else None
    return Entry(name=name, span=_NOWHERE, value=value, block=Block(entries))


def _labelled(kind: str, name: str, entries: list[Entry]) -> Entry:
    return _block(kind, entries, print_name(name))


def _spaced(entries: list[Entry]) -> list[Entry]:
    for entry in entries[1:]:
        entry.spaced = True
    return entries


def expression_text(text: str) -> str:
    """An expression as text after a colon; in brackets when it would end too early."""
    normal = stripped(text)
    scanner = Scanner(normal)
    taken, _ = scanner.raw()
    if taken == normal and not scanner.problems:
        return normal
    return f"({normal}\n)"


def _expressions(expressions: Expressions) -> list[Entry]:
    return [_value(name, expression_text(text)) for name, text in expressions.items()]


def _fields(fields: Fields) -> list[Entry]:
    return [_value(name, print_field(field)) for name, field in fields.items()]


def _strings(strings: list[str]) -> str:
    if len(strings) == 1:
        return quoted(strings[0])
    return f"[{', '.join(map(quoted, strings))}]"


def _when(when: str | None) -> str:
    return f" when ({expression_text(when)})" if when is not None else ""


def _queue(queue: Queue) -> list[Entry]:
    entries: list[Entry] = []
    if queue.message_type:
        entries.append(_block("message_type", _fields(queue.message_type)))
    for name in ("extra_fields", "on_invalid", "fairness", "concurrency", "batch"):
        value = getattr(queue, name)
        if value != getattr(_DEFAULTS[0], name):
            entries.append(_value(name, str(value)))
    entries += _settings(queue, OF_QUEUE)
    if queue.key is not None:
        entries.append(_value("key", expression_text(queue.key)))
    if queue.idempotency is not None:
        entries.append(_idempotency(queue.idempotency))
    for name, known in (("retention", OF_RETENTION), ("delivery", OF_DELIVERY)):
        inner = _settings(queue, known)
        if inner:
            entries.append(_block(name, inner))
    if queue.rate_limit is not None:
        entries.append(_rate_limit(queue.rate_limit))
    if queue.map_to is not None:
        entries.append(_call("map_to", queue.map_to, "command "))
    if queue.deliver is not None:
        entries.append(_deliver(queue.deliver))
    entries += [_then(then) for then in queue.then]
    entries += [_labelled("check", name, _check(check)) for name, check in queue.checks.items()]
    return entries


def _check(check: Check) -> list[Entry]:
    entries = [_value("holds", expression_text(check.holds))]
    if check.on_fail is not Check(holds="").on_fail:
        entries.append(_value("on_fail", str(check.on_fail)))
    return entries


def _settings(queue: Queue, names: tuple[str, ...]) -> list[Entry]:
    entries: list[Entry] = []
    for name in names:
        value = getattr(queue.settings, name)
        if value is UNSET or value is None:
            continue
        if isinstance(value, bool):
            text = "true" if value else "false"
        elif isinstance(value, int | float):
            text = print_number(value)
        else:
            text = print_name(value) if name != "ordering" else str(value)
        entries.append(_value(name, text))
    return entries


def _call(name: str, call: CommandCall, leading: str = "") -> Entry:
    return _value(name, f"{leading}{call.entity}.{call.command}", _expressions(call.fields))


def _then(then: Then) -> Entry:
    return _value("then", f"queue {print_name(then.queue)}{_when(then.when)}", _expressions(then.fields))


def _deliver(deliver: Deliver) -> Entry:
    entries: list[Entry] = []
    if deliver.headers:
        entries.append(_block("headers", [_value(name, quoted(text)) for name, text in deliver.headers.items()]))
    if deliver.headers_env:
        named = [_value(name, quoted(variable)) for name, variable in deliver.headers_env.items()]
        entries.append(_block("headers_env", named))
    if deliver.secret_env:
        entries.append(_value("secret_env", _strings(deliver.secret_env)))
    if deliver.timeout_seconds != _DEFAULTS[3].timeout_seconds:
        entries.append(_value("timeout", print_duration(deliver.timeout_seconds)))
    if deliver.cloudevents is not None:
        entries.append(_value("cloudevents", deliver.cloudevents))
    address = quoted(deliver.url) if deliver.url_env is None else f"env {quoted(deliver.url_env)}"
    return _value("deliver", address, entries or None)


def _rate_limit(limit: RateLimit) -> Entry:
    entries = [_value("count", str(limit.count)), _value("per", print_duration(limit.per_seconds))]
    if limit.key is not None:
        entries.append(_value("key", expression_text(limit.key)))
    return _block("rate_limit", entries)


def _idempotency(idempotency: Idempotency) -> Entry:
    match idempotency.source:
        case IdempotencySource.NONE:
            return _value("idempotency", "none")
        case IdempotencySource.KEY:
            source = _value("key", expression_text(idempotency.value))
        case IdempotencySource.HEADER:
            source = _value("header", quoted(idempotency.value))
        case _:
            source = _value("body_hash", "true")
    entries = [source]
    if idempotency.window_seconds != _DEFAULTS[2].window_seconds:
        entries.append(_value("window", print_duration(idempotency.window_seconds)))
    return _block("idempotency", entries)


def _webhook(webhook: Webhook) -> list[Entry]:
    entries: list[Entry] = []
    if webhook.queue is not None:
        entries.append(_value("queue", print_name(webhook.queue)))
    if webhook.command is not None:
        entries.append(_call("command", webhook.command))
    if webhook.verify is not None:
        entries.append(_verify(webhook.verify))
    if webhook.idempotency is not None:
        entries.append(_idempotency(webhook.idempotency))
    if webhook.keep_headers is not None:
        entries.append(_value("keep_headers", _strings(webhook.keep_headers)))
    if webhook.tenant is not None:
        entries.append(_value("tenant", _tenant(webhook.tenant)))
    if webhook.message:
        entries.append(_block("message", _expressions(webhook.message)))
    return entries


def _tenant(tenant: Tenant) -> str:
    if tenant.key is not None:
        return f"{tenant.source} {expression_text(tenant.key)}"
    return str(tenant.source) if tenant.header is None else f"{tenant.source} {quoted(tenant.header)}"


def _verify(verify: Verify) -> Entry:
    if verify.scheme is Scheme.NONE:
        return _value("verify", "none")
    entries: list[Entry] = []
    if verify.header is not None:
        entries.append(_value("header", quoted(verify.header)))
    if verify.secret_env:
        entries.append(_value("secret_env", _strings(verify.secret_env)))
    if verify.prefix:
        entries.append(_value("prefix", quoted(verify.prefix)))
    if verify.encoding is not _DEFAULTS[1].encoding:
        entries.append(_value("encoding", str(verify.encoding)))
    if verify.algorithm is not _DEFAULTS[1].algorithm:
        entries.append(_value("algorithm", str(verify.algorithm)))
    if verify.tolerance_seconds != _DEFAULTS[1].tolerance_seconds:
        entries.append(_value("tolerance", print_duration(verify.tolerance_seconds)))
    return _block(f"verify_{verify.scheme}", entries)


def _entity(entity: Entity) -> list[Entry]:
    entries = [_value("id", expression_text(entity.id))]
    if entity.state:
        entries.append(_block("state", _fields(entity.state)))
    entries += [_labelled("command", name, _command(command)) for name, command in entity.commands.items()]
    entries += [_labelled("event", name, _expressions(fields)) for name, fields in entity.events.items()]
    return _spaced(entries)


def _command(command: Command) -> list[Entry]:
    entries: list[Entry] = []
    if command.input:
        entries.append(_block("input", _fields(command.input)))
    if command.guard is not None:
        entries.append(_value("guard", expression_text(command.guard)))
    entries += [_emit(emit) for emit in command.emits]
    return entries


def _emit(emit: Emit) -> Entry:
    return _block("emits", _expressions(emit.fields), f"{print_name(emit.event)}{_when(emit.when)}")


def _schedule(schedule: Schedule) -> list[Entry]:
    entries = [_value("cron", quoted(schedule.cron))]
    if schedule.timezone != "UTC":
        entries.append(_value("timezone", quoted(schedule.timezone)))
    entries.append(_value("queue", print_name(schedule.queue)))
    if schedule.message:
        entries.append(_block("message", _expressions(schedule.message)))
    return entries
