"""What answers and looks say of a message: of each something, and of all of them the same place in the log (I2, I6, I13, I15)."""

from __future__ import annotations

from collections.abc import Iterator

from skep.ids import Id
from skep.model import QueueKey
from torture.history import Call, History, Violation
from torture.track import Tracks

SAYING = {"push": "I15", "transact": "I15", "settle": "I6", "renew": "I6"}
"""Calls that are answered for each thing that they ask for, with the promise that an answer which leaves something out breaks."""


def answers_are_whole(tracks: Tracks) -> Iterator[Violation]:
    """I6, I15: an answer says what became of everything that was asked for."""
    for verb, promise in SAYING.items():
        for call in tracks.history.verb(verb):
            asked, told = (0, 0) if call.ended is None else sizes(call)
            if asked != told:
                text = f"the answer to a {verb} of {asked} says what became of {told}"
                yield Violation(promise, text, (call,))


def sizes(call: Call) -> tuple[int, int]:
    """How much a call asked for, and how much its answer tells of. What did not happen is told of as one."""
    if len(call.request) != len(call.answer):
        return len(call.request), len(call.answer)
    asked = told = 0
    for one, answer in zip(call.request, call.answer, strict=True):
        if call.verb == "push" and answer.recorded is None and not answer.held:
            asked, told = asked + len(one.messages), told + len(answer.results)
        elif call.verb == "transact" and answer.committed:
            asked += len(one.settlements) + len(one.push.messages)
            told += len(answer.settled) + len(answer.pushed.results)
    return asked, told


def each_message_has_one_place(tracks: Tracks) -> Iterator[Violation]:
    """I2, I13: whoever sees a message, in the log or delivered, sees it at one seq. Another one is a copy, which nobody pushed.

    A push that was spooled may be stored again when the first one was deleted before the server looked for it; so docs/outages.md says.
    """
    places: dict[tuple[QueueKey, Id], tuple[int, Call]] = {}
    others: dict[tuple[QueueKey, Id], tuple[int, Call]] = {}
    for queue, id_, seq, call in sights(tracks.history):
        if places.setdefault((queue, id_), (seq, call))[0] != seq:
            others.setdefault((queue, id_), (seq, call))
    pushes = {pushed.id: pushed for pushed in tracks.history.pushes} if others else {}
    for (queue, id_), (seq, call) in others.items():
        pushed = pushes.get(id_)
        is_certain = pushed is None or pushed.is_stored or id_ in tracks.history.operated
        if is_certain or not (tracks.may_shrink(queue) or queue in tracks.history.thinned):
            first, earlier = places[queue, id_]
            promise = "I13" if pushed is not None and pushed.call.verb == "accept" else "I2"
            witness = (call,) if earlier is call else (earlier, call)
            yield Violation(promise, f"a message is at seq {first} and at seq {seq}", witness)


def sights(history: History) -> Iterator[tuple[QueueKey, Id, int, Call]]:
    """Where messages were stored, as answers said, and where they were seen."""
    for pushed in history.pushes:
        if pushed.is_stored:
            yield pushed.message.queue, pushed.id, pushed.seq, pushed.call
    for call, messages in history.logs:
        for message in messages:
            yield call.request, message.id, message.seq, call
    for given in history.gives:
        yield given.delivery.queue, given.delivery.id, given.delivery.seq, given.call
