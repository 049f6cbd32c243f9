"""Encrypted queues and the lake: nothing is sealed there, so their payloads go into it only when somebody asks for it by name.

A dead-letter queue of an encrypted queue holds its payloads, and counts as encrypted, too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from skep.errors import Code, SkepError
from skep.model import DEAD_LETTER_SUFFIX, QueueSettings
from skep.wire.queues import ListedQueue


def sealed(queues: Iterable[ListedQueue]) -> dict[str, str]:
    """The queues with payloads that the server keeps encrypted, each with the encrypted queue these are of."""
    found: dict[str, str] = {}
    for queue in queues:
        if queue.settings.encryption_enabled:
            found[queue.name] = queue.name
            found.setdefault(_letters_of(queue.name, queue.settings), queue.name)
    return found


def _letters_of(queue: str, settings: QueueSettings) -> str:
    return settings.dead_letter_queue or f"{queue}{DEAD_LETTER_SUFFIX}"


def hidden(sealed_queues: Mapping[str, str], plain: Collection[str]) -> dict[str, str]:
    """The queues whose payloads must not be written to the lake: all that are sealed, but for those that were asked for by name."""
    return {queue: of for queue, of in sealed_queues.items() if queue not in plain}


def check_plain(queue: str, hidden_queues: Mapping[str, str]) -> None:
    """Refuse to write the payloads of an encrypted queue as plain text."""
    of = hidden_queues.get(queue)
    if of is None:
        return
    what = "is encrypted" if of == queue else f"holds dead letters of {of}, which is encrypted"
    raise SkepError(
        Code.INVALID_REQUEST,
        f"{queue} {what}, and the lake would have its payloads as plain text. To have them there all the same, ask for it by name: "
        f"--plain {queue}. To go without the queue: --skip {queue}",
    )
