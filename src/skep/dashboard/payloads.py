"""Payloads and headers as a page shows them: always text, JSON as a tree, and never more than a browser bears."""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import Any, NamedTuple

import msgspec

from skep.errors import SkepError
from skep.http.request.call import Answer
from skep.strict_json import check_depth

SHOWN_BYTES = 64 * 1024
TREE_NODES = 600
TREE_DEPTH = 24
TEXT_CHARACTERS = 2_000


_TEXTS = {
    "application/json", "application/xml", "application/xhtml+xml", "application/javascript", "application/yaml", "application/x-yaml",
    "application/toml", "application/sql", "application/graphql", "application/x-ndjson", "application/x-www-form-urlencoded",
    "image/svg+xml",
}  # fmt: skip
_FILE_NAME = re.compile(r"[^A-Za-z0-9._-]")


def is_text(content_type: str | None) -> bool:
    """Whether people can read the payload: JSON (which has no content type here), and text types such as XML."""
    if content_type is None:
        return True
    name = content_type.partition(";")[0].strip().lower()
    return name.startswith("text/") or name in _TEXTS or name.endswith(("+xml", "+json", "+yaml"))


def download(payload: bytes, queue: str, seq: int) -> Answer:
    """A payload as a file that a browser keeps and never shows, whatever it says."""
    name = f"{_FILE_NAME.sub('_', queue)[:80]}-{seq}.bin"
    guards = [
        (b"content-disposition", f'attachment; filename="{name}"'.encode()),
        (b"content-security-policy", b"default-src 'none'; sandbox"),
    ]
    return Answer(HTTPStatus.OK, payload, b"application/octet-stream", guards)


class Node(NamedTuple):
    """A value in a tree: its key, its kind, and either its text or what is below it."""

    key: str | None
    kind: str
    text: str
    children: list[Node]


class PayloadPane(NamedTuple):
    """A payload: a tree when it is JSON that is not too much, and a text in any case; ``cut`` when that is not all of it."""

    tree: Node | None
    text: str
    cut: bool
    is_json: bool


def shown(payload: bytes, content_type: str | None, payload_bytes: int | None = None) -> PayloadPane:
    """The part of a payload that a page shows."""
    whole = payload_bytes is None or len(payload) == payload_bytes
    cut = not whole or len(payload) > SHOWN_BYTES
    if not is_text(content_type):
        return PayloadPane(None, payload[:1024].hex(" ", 2), cut or len(payload) > 1024, False)
    text = payload[:SHOWN_BYTES].decode(errors="replace")
    if content_type is not None or cut:
        return PayloadPane(None, text, cut, True)
    try:
        check_depth(payload, TREE_DEPTH)
        value = msgspec.json.decode(payload)
        pretty = msgspec.json.format(payload, indent=2).decode(errors="replace")
    except (msgspec.DecodeError, SkepError, RecursionError):
        return PayloadPane(None, text, cut, True)
    return PayloadPane(_Tree().node(None, value), pretty, cut, True)


class _Tree:
    """Makes a tree, and counts its nodes: no page gets a million lines."""

    def __init__(self) -> None:
        self._left = TREE_NODES

    def node(self, key: str | None, value: Any) -> Node:
        self._left -= 1
        match value:
            case dict():
                return Node(key, "object", _number(len(value), "key"), self._below(list(value.items())))
            case list():
                return Node(
                    key, "array", _number(len(value), "value"), self._below([(str(n), v) for n, v in enumerate(value)])
                )
            case str():
                cut = value if len(value) <= TEXT_CHARACTERS else value[:TEXT_CHARACTERS] + "\N{HORIZONTAL ELLIPSIS}"
                return Node(key, "text", cut, [])
            case bool() | None:
                return Node(key, "word", {True: "true", False: "false", None: "null"}[value], [])
            case _:
                return Node(key, "number", str(value), [])

    def _below(self, items: list[tuple[str, Any]]) -> list[Node]:
        found: list[Node] = []
        for key, value in items:
            if self._left <= 0:
                found.append(Node(None, "more", f"{len(items) - len(found)} more", []))
                break
            found.append(self.node(key, value))
        return found


def _number(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def headers_of(headers: bytes | None) -> list[tuple[str, str]]:
    """Headers as pairs."""
    if headers is None:
        return []
    try:
        found = msgspec.json.decode(headers)
    except msgspec.DecodeError:
        return [("?", headers[:1024].decode(errors="replace"))]
    return [(str(name), str(value)) for name, value in found.items()] if isinstance(found, dict) else []


def one_line(payload: bytes, content_type: str | None, most: int = 160) -> str:
    """The beginning of a payload for a row of a table."""
    if not is_text(content_type):
        return f"{content_type}: {payload[:24].hex(' ', 2)}"
    text = " ".join(payload[: most * 4].decode(errors="replace").split())
    return text if len(text) <= most else text[:most] + "\N{HORIZONTAL ELLIPSIS}"
