"""Notices: the next page says once what an action did.

A form's answer is a redirect, and the notice goes along in a cookie that only this server sets and no script can read. The notice is not
in the URL: a link from somebody else cannot claim that something was done.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import parse_qsl, urlencode, urlsplit

from skep.http.request.call import Call

COOKIE = "skep_notice"
KEPT_SECONDS = 60
"""How long the page that says it may take to come."""
_TOLD = re.compile(r"([a-z_]{1,40})\.(\d{0,19})")

_NOTICES = {
    "paused": "The queue is paused: it accepts messages and delivers none.",
    "resumed": "The queue is resumed: it delivers messages again.",
    "changed": "{number} setting{s} changed.",
    "published": "The message was published at seq {number}.",
    "duplicate": "Duplicate: a message with this transaction id exists at seq {number}.",
    "moved": "Seek done: the group has {number} message{s} pending.",
    "released": "{number} lease{s} released; {its} messages will be redelivered.",
    "cleared": "{number} message{s} cleared.",
    "deleted": "The group was deleted.",
    "replayed": "{number} dead letter{s} replayed.",
    "cancelled": "The operation was cancelled.",
    "unscheduled": "{number} scheduled message{s} cancelled.",
    "ran": "{number} scheduled message{s} entered the log.",
    "rescheduled": "{number} scheduled message{s} moved to another time.",
    "message_deleted": "Message {number} was deleted.",
    "purged": "{number} dead letter{s} deleted permanently.",
}


def notice_of(query: Mapping[str, str]) -> str | None:
    """The sentence that a query means."""
    sentence = _NOTICES.get(query.get("notice", ""))
    if sentence is None:
        return None
    number = query.get("number", "")
    if not (number.isascii() and number.isdecimal() and len(number) < 20):
        number = "0"
    is_one = int(number) == 1
    said = sentence.replace("{number}", f"{int(number):,}")
    return said.replace("{s}", "" if is_one else "s").replace("{its}", "its" if is_one else "their")


def noticed(call: Call, address: str, root: str) -> tuple[str, *tuple[tuple[bytes, bytes], ...]]:
    """An address without the notice that an action put into its query, and the cookie that carries it instead."""
    parts = urlsplit(address)
    pairs = parse_qsl(parts.query, keep_blank_values=True)
    said = {name: value for name, value in pairs if name in ("notice", "number")}
    if "notice" not in said:
        return (address,)
    query = urlencode([(name, value) for name, value in pairs if name not in said])
    value = f"{said['notice']}.{said.get('number', '')}"
    return parts._replace(query=query).geturl(), _cookie(call, root, value, KEPT_SECONDS)


def told_of(call: Call, root: str) -> tuple[str | None, list[tuple[bytes, bytes]]]:
    """The notice of the last action, and the header that removes its cookie. A request that refreshes a part of a page leaves both alone."""
    if call.header(b"hx-request") is not None:
        return None, []
    given = [
        value.decode("latin-1")
        for header, content in call.scope["headers"]
        if header == b"cookie"
        for part in bytes(content).split(b";")
        for key, _, value in [part.strip().partition(b"=")]
        if key == COOKIE.encode()
    ]
    if not given:
        return None, []
    found = _TOLD.fullmatch(given[0]) if len(given) == 1 else None
    notice = None if found is None else notice_of({"notice": found[1], "number": found[2]})
    return notice, [_cookie(call, root, "", 0)]


def _cookie(call: Call, root: str, value: str, seconds: int) -> tuple[bytes, bytes]:
    secure = "; Secure" if call.is_https else ""
    return (
        b"set-cookie",
        f"{COOKIE}={value}; Max-Age={seconds}; Path={root}; HttpOnly; SameSite=Strict{secure}".encode(),
    )
