"""The parser of queues."""

from __future__ import annotations

import re
from collections.abc import Callable

import msgspec

from skep.model import Ordering, QueueChanges
from skep.model.queue_settings import SETTINGS, SettingKind, SpecBlock, settings_of
from skep.model.setting_names import ELSEWHERE
from skep.spec.faults import TextError
from skep.spec.ir import (
    Check,
    CommandCall,
    Deliver,
    EventMode,
    ExtraFields,
    Fairness,
    Idempotency,
    IdempotencySource,
    OnFail,
    OnInvalid,
    Queue,
    RateLimit,
    Then,
)
from skep.spec.problems import Path
from skep.spec.reading import Reading, word_of
from skep.spec.scanning import is_wrapped
from skep.spec.syntax import Block, Entry, RawText
from skep.spec.values import read_amount, read_bool, read_duration, read_int, read_name, read_string, read_strings

OF_QUEUE = settings_of(SpecBlock.QUEUE)
OF_RETENTION = settings_of(SpecBlock.RETENTION)
OF_DELIVERY = settings_of(SpecBlock.DELIVERY)

_PARTS = (
    "message_type", "extra_fields", "on_invalid", "retention", "delivery", "key", "idempotency", "idempotency_key",
    "idempotency_window", "map_to", "then", "deliver", "rate_limit", "fairness", "concurrency", "batch",
    "check",
)  # fmt: skip
_CALL = re.compile(r"([A-Za-z_]\w*)\s*\.\s*([A-Za-z_]\w*)", re.ASCII)
_WHEN = re.compile(r"\s+when\b", re.ASCII)


def parse_queue(reading: Reading, block: Block, path: Path) -> Queue:
    """A queue from its block."""
    found: dict[str, object] = {}
    settings: dict[str, object] = {}
    for entry in reading.entries(block, (*OF_QUEUE, *_PARTS), "a queue", ("then", "check"), _meant):
        if entry.name in OF_QUEUE:
            _setting(reading, entry, entry.name, settings, path)
        elif entry.name in ("retention", "delivery"):
            _settings(reading, entry, settings, path)
        else:
            _part(reading, entry, found, path)
    found["settings"] = QueueChanges(**settings)  # type: ignore[arg-type]  # each was read by its own reader
    return Queue(**{name: value for name, value in found.items() if value is not None})  # type: ignore[arg-type]


def _part(reading: Reading, entry: Entry, found: dict[str, object], path: Path) -> None:
    at = (*path, entry.name)
    match entry.name:
        case "message_type":
            block = reading.block(entry, at)
            found["message_type"] = reading.fields(block, at, "the message type") if block else None
        case "extra_fields":
            found["extra_fields"] = reading.value(entry, at, word_of(*ExtraFields))
        case "on_invalid":
            found["on_invalid"] = reading.value(entry, at, word_of(*OnInvalid))
        case "fairness":
            found["fairness"] = reading.value(entry, at, word_of(*Fairness))
        case "concurrency" | "batch":
            found[entry.name] = reading.value(entry, at, read_int)
        case "key":
            found["key"] = reading.expression(entry, at)
        case "map_to":
            found["map_to"] = parse_call(reading, entry, at, leading="command")
        case "then":
            _then(reading, entry, found, path)
        case "check":
            _check(reading, entry, found, path)
        case "deliver":
            found["deliver"] = _deliver(reading, entry, at)
        case "rate_limit":
            found["rate_limit"] = _rate_limit(reading, entry, at)
        case _:
            idempotency = found.get("idempotency")
            assert idempotency is None or isinstance(idempotency, Idempotency)
            found["idempotency"] = parse_idempotency(reading, entry, (*path, "idempotency"), idempotency)


def full_name(name: str, known: tuple[str, ...]) -> str:
    """The full name of a setting; in a spec its unit may be left out."""
    return next((name + suffix for suffix in ("", "_seconds", "_ms") if name + suffix in known), name)


def _meant(name: str) -> str | None:
    """Where to write a setting that is in the wrong place, or has the name of another message queue."""
    meant = ELSEWHERE.get(name, name)
    setting = meant.split()[0].rstrip(",")
    for block, known in (("retention", OF_RETENTION), ("delivery", OF_DELIVERY)):
        if full_name(setting, known) in known:
            return f"in the block {block}: {meant}"
    return f"in the queue itself: {meant}" if setting in OF_QUEUE else None


def _settings(reading: Reading, entry: Entry, settings: dict[str, object], path: Path) -> None:
    known = OF_RETENTION if entry.name == "retention" else OF_DELIVERY
    block = reading.block(entry, (*path, entry.name))
    if block is None:
        return
    spelled = {*known, *(name.removesuffix("_seconds").removesuffix("_ms") for name in known)}
    for inner in reading.entries(block, spelled, entry.name, meant=_meant):
        name = full_name(inner.name, known)
        if name in settings:
            reading.problem(inner.span, f"{name!r} is said twice", "one of the two spellings")
        else:
            _setting(reading, inner, name, settings, path)


def _setting(reading: Reading, entry: Entry, name: str, settings: dict[str, object], path: Path) -> None:
    value = reading.value(entry, (*path, "settings", name), _reader(name, bare=entry.name != name))
    if value is not None:
        settings[name] = value


def _reader(name: str, bare: bool) -> Callable[[str], object]:
    match SETTINGS[name].kind:
        case SettingKind.NAME:
            return read_name
        case SettingKind.SWITCH:
            return read_bool
        case SettingKind.ORDERING:
            return word_of(*Ordering)
        case SettingKind.SECONDS:
            return read_duration if bare else lambda text: read_amount(text, 1.0)
        case SettingKind.WHOLE if name.endswith("_ms"):
            return lambda text: _whole(read_duration(text) * 1000 if bare else read_amount(text, 0.001))
        case SettingKind.WHOLE:
            return read_int


def _whole(value: float) -> int:
    if not value.is_integer():
        raise TextError(0, "this is not a whole number of milliseconds", "a whole number")
    return int(value)


def parse_call(reading: Reading, entry: Entry, path: Path, leading: str = "") -> CommandCall | None:
    """Parse ``Entity.Command { field: expression }``, after the word ``leading`` if there is one."""
    expected = f"{entry.name}: {leading + ' ' if leading else ''}Entity.Command {{ … }}"
    if entry.value is None or not entry.colon:
        reading.problem(entry.span, f"{entry.name!r} names no command", expected)
        return None
    reading.spans[path] = entry.value.span
    text = entry.value.text
    word, _, rest = text.partition(" ") if leading else ("", "", text)
    match = _CALL.fullmatch(rest.strip())
    if word != leading or match is None:
        reading.problem(entry.value.span, f"{text[:60]!r} is not a command", expected)
        return None
    fields = reading.expressions(entry.block, (*path, "fields"), "the mapping") if entry.block else {}
    return CommandCall(entity=match[1], command=match[2], fields=fields)


def _then(reading: Reading, entry: Entry, found: dict[str, object], path: Path) -> None:
    chain = found.setdefault("then", [])
    assert isinstance(chain, list)
    at = (*path, "then", len(chain))
    if entry.value is None or not entry.colon or not entry.value.text.startswith("queue "):
        reading.problem(
            entry.value.span if entry.value else entry.span, "'then' names no queue", "then: queue Name { … }"
        )
        return
    reading.spans[at] = entry.value.span
    head = inner(entry.value, len("queue "))
    name, when = split_when(head)
    reading.spans[(*at, "queue")] = name.span
    queue = reading.read(name, read_name)
    if when is not None:
        reading.spans[(*at, "when")] = when.span
    fields = reading.expressions(entry.block, (*at, "fields"), "the message") if entry.block else {}
    if queue is not None:
        chain.append(Then(queue=queue, fields=fields, when=when.text if when else None))


def _check(reading: Reading, entry: Entry, found: dict[str, object], path: Path) -> None:
    checks = found.setdefault("checks", {})
    assert isinstance(checks, dict)
    name = reading.label(entry, (*path, "checks"), checks)
    at = (*path, "checks", name or "")
    block = reading.block(entry, at, labelled=True)
    if name is None or block is None:
        return
    holds: str | None = None
    on_fail: OnFail | None = None
    noted = len(reading.problems)
    for part in reading.entries(block, ("holds", "on_fail"), "a check"):
        if part.name == "holds":
            holds = reading.expression(part, (*at, "holds"))
        else:
            on_fail = reading.value(part, (*at, "on_fail"), word_of(*OnFail))
    if holds is not None:
        checks[name] = Check(holds=holds, on_fail=on_fail or OnFail.WARN)
    elif len(reading.problems) == noted:
        reading.problem(entry.span, "the check says nothing", "holds: and an expression")


def split_when(value: RawText) -> tuple[RawText, RawText | None]:
    """Split ``Name when (condition)``; one pair of brackets around the condition is dropped."""
    match = _WHEN.search(value.text)
    if match is None:
        return value, None
    condition = inner(value, match.end())
    if is_wrapped(condition.text):
        condition = inner(RawText(condition.text[:-1], condition.span), 1)
        condition.text = condition.text.rstrip()
    return RawText(value.text[: match.start()].rstrip(), value.span), condition


def inner(value: RawText, start: int) -> RawText:
    """A value without its first characters and the white space after them."""
    while start < len(value.text) and value.text[start].isspace():
        start += 1
    skipped = value.text[:start].split("\n")
    columns = value.span.columns[len(skipped) - 1 :] or value.span.columns[-1:]
    span = msgspec.structs.replace(
        value.span, line=value.span.line + len(skipped) - 1, columns=(columns[0] + len(skipped[-1]), *columns[1:])
    )
    return RawText(value.text[start:], span)


def _deliver(reading: Reading, entry: Entry, path: Path) -> Deliver | None:
    if entry.value is None or not entry.colon:
        reading.problem(entry.span, "'deliver' names no address", 'deliver: "https://…", or deliver: env "VARIABLE"')
        return None
    reading.spans[path] = reading.spans[(*path, "url")] = reading.spans[(*path, "url_env")] = entry.value.span
    found: dict[str, object] = reading.read(entry.value, _read_address) or {}
    block = entry.block or Block([])
    for part in reading.entries(block, ("headers", "headers_env", "secret_env", "timeout", "cloudevents"), "deliver"):
        if part.name in ("headers", "headers_env"):
            headers = reading.block(part, (*path, part.name))
            found[part.name] = _headers(reading, headers, (*path, part.name)) if headers else None
        elif part.name == "secret_env":
            found["secret_env"] = reading.value(part, (*path, "secret_env"), read_strings)
        elif part.name == "cloudevents":
            found["cloudevents"] = reading.value(part, (*path, "cloudevents"), word_of(*EventMode))
        else:
            found["timeout_seconds"] = reading.value(part, (*path, "timeout_seconds"), read_duration)
    if "url" not in found and "url_env" not in found:
        return None
    return Deliver(**{name: value for name, value in found.items() if value is not None})  # type: ignore[arg-type]


def _read_address(text: str) -> dict[str, object]:
    word, _, variable = text.partition(" ")
    return {"url_env": read_string(variable.strip())} if word == "env" else {"url": read_string(text)}


def _headers(reading: Reading, block: Block, path: Path) -> dict[str, str]:
    found: dict[str, str] = {}
    for entry in block.entries:
        value = reading.value(entry, (*path, entry.name), read_string)
        if entry.name in found:
            reading.problem(entry.span, f"there are two headers {entry.name!r}")
        elif value is not None:
            found[entry.name] = value
    return found


def _rate_limit(reading: Reading, entry: Entry, path: Path) -> RateLimit | None:
    block = reading.block(entry, path)
    if block is None:
        return None
    count: int | None = None
    per: float | None = None
    key: str | None = None
    noted = len(reading.problems)
    for part in reading.entries(block, ("count", "per", "key"), "rate_limit"):
        if part.name == "count":
            count = reading.value(part, (*path, "count"), read_int)
        elif part.name == "per":
            per = reading.value(part, (*path, "per_seconds"), read_duration)
        else:
            key = reading.expression(part, (*path, "key"))
    if count is None or per is None:
        if len(reading.problems) == noted:
            reading.problem(entry.span, "'rate_limit' is not whole", "count: 100 and per: 1m")
        return None
    return RateLimit(count=count, per_seconds=per, key=key)


def parse_idempotency(reading: Reading, entry: Entry, path: Path, known: Idempotency | None) -> Idempotency | None:
    """Parse an ``idempotency`` block, the word none, or a short form, which adds to what is known already."""
    if entry.name == "idempotency_key":
        text = reading.expression(entry, (*path, "value"))
        window = known.window_seconds if known else Idempotency(source=IdempotencySource.KEY).window_seconds
        return Idempotency(source=IdempotencySource.KEY, value=text, window_seconds=window) if text else known
    if entry.name == "idempotency_window":
        seconds = reading.value(entry, (*path, "window_seconds"), read_duration)
        source, value = (known.source, known.value) if known else (IdempotencySource.KEY, "")
        return Idempotency(source=source, value=value, window_seconds=seconds) if seconds is not None else known
    if entry.colon:
        reading.value(entry, path, word_of("none"))
        return Idempotency(source=IdempotencySource.NONE)
    block = reading.block(entry, path)
    return _idempotency_block(reading, entry, block, path) if block else None


def _idempotency_block(reading: Reading, entry: Entry, block: Block, path: Path) -> Idempotency | None:
    sources: list[tuple[IdempotencySource, str]] = []
    seconds: float | None = None
    noted = len(reading.problems)
    for part in reading.entries(block, ("key", "header", "body_hash", "window"), "idempotency"):
        if part.name == "key" and (text := reading.expression(part, (*path, "value"))) is not None:
            sources.append((IdempotencySource.KEY, text))
        elif part.name == "header" and (name := reading.value(part, (*path, "value"), read_string)) is not None:
            sources.append((IdempotencySource.HEADER, name))
        elif part.name == "body_hash" and reading.value(part, (*path, "source"), word_of("true")) is not None:
            sources.append((IdempotencySource.BODY, ""))
        elif part.name == "window":
            seconds = reading.value(part, (*path, "window_seconds"), read_duration)
    if len(sources) != 1:
        if len(reading.problems) == noted:
            reading.problem(entry.span, "repeats are told by exactly one thing", "key:, header: or body_hash: true")
        return None
    source, value = sources[0]
    if seconds is None:
        return Idempotency(source=source, value=value)
    return Idempotency(source=source, value=value, window_seconds=seconds)
