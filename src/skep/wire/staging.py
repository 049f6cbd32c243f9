"""Staged messages on the wire."""

from __future__ import annotations

from msgspec import Struct

from skep.model.staging import Attempt, PublishedAnswer

__all__ = [
    "Attempt",
    "PublishRequest",
    "PublishedAnswer",
    "StagedAttempt",
    "StagingAborted",
    "StagingResponse",
    "StagingView",
]


class StagingResponse(Struct, rename="camel"):
    """What was staged by one request."""

    query: str
    epoch: int
    partition: int
    attempt: int
    chunk: int
    messages: int


class PublishRequest(Struct, rename="camel", forbid_unknown_fields=True):
    """One attempt of each partition, and how many messages it staged: so it is seen when some are missing."""

    attempts: list[Attempt]


class StagedAttempt(Struct, rename="camel"):
    """An attempt that waits to be published."""

    partition: int
    attempt: int
    messages: int
    chunks: int


class StagingView(Struct, rename="camel"):
    """What is known of an epoch: whether it is published and what was answered then, and what is staged."""

    query: str
    epoch: int
    published: bool
    answer: PublishedAnswer | None
    attempts: list[StagedAttempt]


class StagingAborted(Struct, rename="camel"):
    """How many chunks were forgotten."""

    query: str
    epoch: int
    chunks: int
