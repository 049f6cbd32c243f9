"""Encrypted queues and the lake: the lake is not encrypted, so it takes their payloads only when the user names the queue.

The dead-letter queue of an encrypted queue holds its payloads, so it counts as encrypted, too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from skep.errors import Code, SkepError
from skep.model import DEAD_LETTER_SUFFIX
from skep.wire.queues import ListedQueue


class SealedReason(NamedTuple):
    """Why the payloads of a queue are encrypted: their own queue ``of`` is encrypted now, or was before."""

    of: str
    is_now: bool


def sealed(queues: Iterable[ListedQueue]) -> dict[str, SealedReason]:
    """The queues whose payloads the server keeps encrypted. Old payloads stay encrypted when a queue's encryption is turned off."""
    found: dict[str, SealedReason] = {}
    for queue in queues:
        if queue.settings.encryption_enabled or queue.has_data_keys:
            found[queue.name] = SealedReason(queue.name, queue.settings.encryption_enabled)
            letters = queue.settings.dead_letter_queue or f"{queue.name}{DEAD_LETTER_SUFFIX}"
            found.setdefault(letters, found[queue.name])
    return found


def hidden(sealed_queues: Mapping[str, SealedReason], plain: Collection[str]) -> dict[str, SealedReason]:
    """The encrypted queues whose payloads must not be written to the lake: all but those that the user named (`--plain`)."""
    return {queue: why for queue, why in sealed_queues.items() if queue not in plain}


def check_plain(queue: str, hidden_queues: Mapping[str, SealedReason]) -> None:
    """Refuse to write the payloads of an encrypted queue as plain text."""
    why = hidden_queues.get(queue)
    if why is None:
        return
    when = "is encrypted" if why.is_now else "was encrypted for a time"
    what = when if why.of == queue else f"holds dead letters of {why.of}, which {when}"
    raise SkepError(
        Code.INVALID_REQUEST,
        f"{queue} {what}, and the lake would have its payloads as plain text. To have them there all the same, ask for it by name: "
        f"--plain {queue}. To go without the queue: --skip {queue}",
    )
