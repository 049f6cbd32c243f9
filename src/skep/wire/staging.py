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
    """The outcome of one staging request."""

    query: str
    epoch: int
    partition: int
    attempt: int
    chunk: int
    messages: int


class PublishRequest(Struct, rename="camel", forbid_unknown_fields=True):
    """One attempt of each partition, and the number of its staged messages, so that missing ones are noticed."""

    attempts: list[Attempt]


class StagedAttempt(Struct, rename="camel"):
    """An attempt that waits to be published."""

    partition: int
    attempt: int
    messages: int
    chunks: int


class StagingView(Struct, rename="camel"):
    """An epoch: whether it is published, the answer of that, and its staged attempts."""

    query: str
    epoch: int
    published: bool
    answer: PublishedAnswer | None
    attempts: list[StagedAttempt]


class StagingAborted(Struct, rename="camel"):
    """The number of deleted chunks."""

    query: str
    epoch: int
    chunks: int
