"""What was just done, as a page says it after the redirect. A URL names one of these and a number, and no text of its own:
a link that someone sends cannot put words into the dashboard's mouth.
"""

from __future__ import annotations

from collections.abc import Mapping

_NOTICES = {
    "paused": "The queue is paused: it takes messages, and hands out none.",
    "resumed": "The queue hands out messages again.",
    "changed": "{number} setting{s} changed.",
    "published": "The message is in the log at seq {number}.",
    "duplicate": "A message with this transaction id is there already, at seq {number}.",
    "moved": "The group was moved: it has {number} message{s} to do.",
    "released": "{number} lease{s} ended: what they held is delivered again.",
    "cleared": "{number} message{s} taken away.",
    "forgotten": "The group is forgotten.",
    "replayed": "{number} dead letter{s} went back to their queues.",
    "cancelled": "The operation is cancelled.",
    "purged": "{number} dead letter{s} deleted for good.",
}


def notice_of(query: Mapping[str, str]) -> str | None:
    """The sentence that a query means."""
    sentence = _NOTICES.get(query.get("notice", ""))
    if sentence is None:
        return None
    number = query.get("number", "")
    if not (number.isascii() and number.isdecimal() and len(number) < 20):
        number = "0"
    return sentence.replace("{number}", f"{int(number):,}").replace("{s}", "" if int(number) == 1 else "s")
