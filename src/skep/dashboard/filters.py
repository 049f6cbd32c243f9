"""The one filter box: `queue:orders partition:"a b" txid:1 trace:… state:pending payload.customer.id=42`.

A word that names no field is an error that names the fields, so that a misspelt one is not silently without effect.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec
from msgspec import Struct

from skep.errors import Code, SkepError
from skep.ids import Id, parse_id
from skep.model import MessageState

FIELDS = ("queue", "partition", "group", "state", "txid", "trace", "since", "until", "order")
STATES = tuple(MessageState)
_TOKEN = re.compile(r'([A-Za-z_][\w.\-\[\]]*)\s*(:|=)\s*("(?:[^"\\]|\\.)*"|\S+)|(\S+)')
_NEEDS_QUOTES = re.compile(r'[\s"]')
WORDS_MAX = 40


class PayloadTest(Struct, frozen=True):
    """A path in the payload and the value that must be there, compared as text or as the same number."""

    path: str
    value: str

    def holds(self, payload: Any) -> bool:
        """Whether a decoded payload has it."""
        for step in self.path.split("."):
            if isinstance(payload, dict):
                payload = payload.get(step, _MISSING)
            elif isinstance(payload, list) and step.isdecimal() and len(step) < 9:
                payload = payload[int(step)] if int(step) < len(payload) else _MISSING
            else:
                return False
            if payload is _MISSING:
                return False
        return _as_text(payload) == self.value


_MISSING = object()


class Filter(Struct, frozen=True):
    """The parsed text of the filter box."""

    queue: str | None = None
    partition: str | None = None
    group: str | None = None
    state: MessageState | None = None
    txid: str | None = None
    trace: Id | None = None
    since: str | None = None
    until: str | None = None
    order: str | None = None
    payload: tuple[PayloadTest, ...] = ()


def parse(text: str) -> Filter:
    """Read the box."""
    said: dict[str, str] = {}
    tests: list[PayloadTest] = []
    words = list(_TOKEN.finditer(text))
    if len(words) > WORDS_MAX:
        raise _wrong(f"a filter has at most {WORDS_MAX} words")
    for word in words:
        name, sign, value, other = word.groups()
        if other is not None:
            raise _wrong(
                f"{other[:60]!r} is no field; write one of {', '.join(f + ':' for f in FIELDS)} or payload.path=value"
            )
        value = _unquoted(value)
        if name.startswith("payload."):
            tests.append(PayloadTest(name.removeprefix("payload."), value))
        elif name in FIELDS and sign == ":":
            said[name] = value
        else:
            raise _wrong(f"there is no field {name[:60]!r}; there are {', '.join(FIELDS)} and payload.path=value")
    return Filter(
        queue=said.get("queue"), partition=said.get("partition"), group=said.get("group"), state=_state(said.get("state")),
        txid=said.get("txid"), trace=_trace(said.get("trace")), since=said.get("since"), until=said.get("until"),
        order=said.get("order"), payload=tuple(tests),
    )  # fmt: skip


def write(**fields: str | None) -> str:
    """The box that says this."""
    return " ".join(f"{name}:{quoted(value)}" for name, value in fields.items() if value)


def quoted(value: str) -> str:
    """A value as the box takes it."""
    if not _NEEDS_QUOTES.search(value):
        return value
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _unquoted(value: str) -> str:
    if len(value) > 1 and value.startswith('"') and value.endswith('"'):
        return re.sub(r"\\(.)", r"\1", value[1:-1])
    return value


def _state(text: str | None) -> MessageState | None:
    if text is None:
        return None
    try:
        return MessageState(text)
    except ValueError:
        raise _wrong(f"state is one of {', '.join(STATES)}, not {text[:60]!r}") from None


def _trace(text: str | None) -> Id | None:
    if text is None:
        return None
    try:
        return parse_id(text)
    except ValueError:
        raise _wrong(f"trace is a UUID, not {text[:60]!r}") from None


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _wrong(message: str) -> SkepError:
    return SkepError(Code.INVALID_REQUEST, message)
