"""Staged messages: in no log until they are published."""

from __future__ import annotations

from typing import Protocol

from skep.clock import Instant
from skep.ids import Id
from skep.model.staging import Attempt, EpochKey, Published, StagedChunk


class StagingVerbs(Protocol):
    """Chunks of messages, and their publication."""

    async def stage(self, chunk: StagedChunk, now: Instant) -> None:
        """Store a chunk; a chunk that is sent again replaces the first. EPOCH_PUBLISHED when its epoch was published already."""

    async def staged(self, epoch: EpochKey) -> list[tuple[Attempt, int]]:
        """The attempts that are staged, in the order of partition and attempt, each with its number of chunks."""

    async def publish(
        self,
        epoch: EpochKey,
        attempts: list[Attempt],
        first_id: Id,
        expires_at: Instant,
        now: Instant,
        create_queues: bool = True,
    ) -> Published:
        """Append these attempts in the order of partition, chunk and place, in one transaction, and delete all others.

        This happens once: until ``expires_at`` a repeat gets the first answer and changes nothing. All rules of a push hold, and a
        refusal (QUEUE_FULL, …) leaves everything as it was. STAGING_INCOMPLETE when an attempt is not complete. The messages get
        the ids from ``first_id`` on.
        """

    async def staged_queues(self, epoch: EpochKey) -> list[str]:
        """The names of the target queues of an epoch's staged messages."""

    async def abort(self, epoch: EpochKey, partition: int | None = None, attempt: int | None = None) -> int:
        """Delete the staged messages of an epoch, or of one attempt; returns the number of chunks."""
