"""What a Spark job copied from one queue into another: each message once (I1, I3), unchanged (I2), in the order of its partition (I4)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from skep.ids import Id
from skep.model import StoredMessage
from torture.history import Call, Copy, Violation
from torture.track import Tracks


def copies_are_once(tracks: Tracks) -> Iterator[Violation]:
    """I1, I2, I3, I4: at the end each message of the source has one copy, and there are no others."""
    for call in tracks.history.verb("copies"):
        if call.ended is None:
            continue
        source, _ = call.request
        seen = [(look, messages) for look, messages in tracks.history.logs if look.request == source]
        messages = {message.id: (look, message) for look, found in seen for message in found}
        yield from copies_in_order(call, messages)
        times = Counter(copy.id for copy in call.answer)
        for id_, (look, message) in messages.items():
            if times[id_] > 1:
                text = f"seq {message.seq} of {source.name} was copied {times[id_]} times"
                yield Violation("I3", text, (look, call))
            elif times[id_] == 0 and tracks.history.drained and look.is_before(call):
                yield Violation("I1", f"seq {message.seq} of {source.name} was not copied", (look, call))


def copies_in_order(call: Call, messages: dict[Id, tuple[Call, StoredMessage]]) -> Iterator[Violation]:
    """Each copy against its message, and against the copies before it in its partition. A doubled copy is told by the caller."""
    source, sink = call.request
    last: dict[str, int] = {}
    done: set[Id] = set()
    for copy in call.answer:
        if copy.id not in messages:
            text = f"seq {copy.copied_as} of {sink.name} is a copy of {copy.id}, which is not in {source.name}"
            yield Violation("I2", text, (call,))
            continue
        look, message = messages[copy.id]
        if not is_same(copy, message):
            text = f"seq {copy.copied_as} of {sink.name} is not what seq {message.seq} of {source.name} was"
            yield Violation("I2", text, (look, call))
        if copy.id in done:
            continue
        done.add(copy.id)
        before = last.get(copy.partition, 0)
        if message.seq < before:
            text = f"{copy.partition}: seq {message.seq} of {source.name} was copied after {before}"
            yield Violation("I4", text, (look, call))
        last[copy.partition] = max(before, message.seq)


def is_same(copy: Copy, message: StoredMessage) -> bool:
    return (copy.partition, copy.seq, copy.transaction_id, copy.payload.encode()) == (
        message.partition,
        message.seq,
        message.transaction_id,
        message.payload,
    )
