"""The calls about dead letters: look at them, replay, purge and bury. Nothing here sends anything."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal, TypedDict, Unpack

from msgspec import Raw

from skep.client.exchange import ApiCall, path_part
from skep.client.method import QUERY_DEFAULTS, PagedList, call, get, listed, pages, post
from skep.client.outgoing import encode
from skep.client.spelling import spelled_out
from skep.errors import Code, SkepError
from skep.model import DeadReason
from skep.wire.dead_letters import (
    Buried,
    BuryRequest,
    DeadLetterSelection,
    DeadLettersResponse,
    DeadLetterView,
    PurgeResponse,
    ReplayEditedRequest,
    ReplayResponse,
    ReplaysResponse,
    ReplayView,
    UnfitMessage,
)

DEAD_LETTERS = "/api/v1/dlq"


class DeadLetterQuery(TypedDict, total=False):
    """Which dead letters to look at; ``error`` is a part of the error's text."""

    source_queue: str
    partition: str
    group: str
    reason: DeadReason | Literal["max_attempts", "rejected", "expired", "invalid", "operation_failed"]
    error: str
    since: datetime
    until: datetime
    preview: int


class DeadLetterWish(TypedDict, total=False):
    """Which dead letters to replay or purge; with none of these, all of them. ``dry_run`` only counts them.

    ``up_to_seq`` comes from the answer of a dry run: only the dead letters that the dry run counted are touched.
    """

    ids: list[str]
    seqs: list[int]
    source_queue: str
    partition: str
    group: str
    reason: DeadReason | Literal["max_attempts", "rejected", "expired", "invalid", "operation_failed"]
    error: str
    since: datetime
    until: datetime
    dry_run: bool
    up_to_seq: int


class DeadLetterCalls:
    """The client's calls about dead letters."""

    @pages
    @spelled_out(DeadLetterQuery, QUERY_DEFAULTS)
    def dead_letters(self, queue: str, **query: Unpack[DeadLetterQuery]) -> PagedList[DeadLetterView]:
        """The dead letters of a queue, or all in a dead-letter queue, oldest first."""
        return listed(DEAD_LETTERS, DeadLettersResponse, lambda page: page.dead_letters, {**query, "queue": queue})

    @call
    def dead_letter(self, queue: str, letter: str | int) -> ApiCall[DeadLetterView]:
        """One dead letter, by its id or seq, with its whole payload."""
        return get(_letter(queue, letter), DeadLetterView)

    @call
    @spelled_out(DeadLetterWish, QUERY_DEFAULTS)
    def replay(self, queue: str, **wish: Unpack[DeadLetterWish]) -> ApiCall[ReplayResponse]:
        """Send dead letters back to their queues, in order; each to the group that gave it up."""
        return post(f"{DEAD_LETTERS}/replay", ReplayResponse, _selection(queue, wish))

    @call
    def replay_edited(self, queue: str, letter: str | int, payload: object) -> ApiCall[ReplayResponse]:
        """Send one dead letter, by its id or seq, back to its queue with another payload."""
        body = ReplayEditedRequest(Raw(encode(payload)))
        return post(f"{_letter(queue, letter)}/replay", ReplayResponse, body)

    @pages
    def replays(self, queue: str, *, source_queue: str | None = None) -> PagedList[ReplayView]:
        """The replayed dead letters of a queue, newest first: the new message of each, and its outcome."""
        query = {"queue": queue, "source_queue": source_queue}
        return listed(f"{DEAD_LETTERS}/replays", ReplaysResponse, lambda page: page.replays, query)

    @call
    def bury(self, queue: str, letters: Mapping[int, str], *, name: str) -> ApiCall[Buried]:
        """Dead-letter messages of the log, by their seqs and with an error each; a repeat with the same ``name`` does nothing.

        This is for readers of the raw log, which have no leases. The log and its groups keep the messages.
        """
        unfit = [UnfitMessage(seq, error) for seq, error in letters.items()]
        return post(f"{DEAD_LETTERS}/bury", Buried, BuryRequest(queue, name, unfit))

    @call
    @spelled_out(DeadLetterWish, QUERY_DEFAULTS)
    def purge(self, queue: str, **wish: Unpack[DeadLetterWish]) -> ApiCall[PurgeResponse]:
        """Delete dead letters for good."""
        return post(f"{DEAD_LETTERS}/purge", PurgeResponse, _selection(queue, wish))


def _letter(queue: str, letter: str | int) -> str:
    return f"{DEAD_LETTERS}/{path_part(queue)}/{path_part(str(letter))}"


def _selection(queue: str, wish: DeadLetterWish) -> DeadLetterSelection:
    given: dict[str, Any] = {**wish, "queue": queue}
    if "group" in given:
        given["consumer_group"] = given.pop("group")
    try:
        return DeadLetterSelection(**given)
    except TypeError as error:
        raise SkepError(Code.INVALID_REQUEST, str(error)) from None
