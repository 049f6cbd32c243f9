"""What was just done, as a page says it after the redirect. A URL names one of these and a number, and no text of its own:
a link that someone sends cannot put words into the dashboard's mouth.
"""

from __future__ import annotations

from collections.abc import Mapping

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
