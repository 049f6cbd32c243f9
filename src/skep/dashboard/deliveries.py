"""The attempts of a message in each group, finished and under way, with the errors of failed attempts."""

from __future__ import annotations

from collections.abc import Sequence

from skep.engine import Engine
from skep.engine.attempts import DeliveryAttempt
from skep.model import StoredMessage
from skep.model.history import Journey


async def deliveries_of(engine: Engine, messages: Sequence[StoredMessage]) -> list[list[DeliveryAttempt]]:
    """The deliveries of each message, oldest first."""
    return await engine.history.attempts(
        [Journey(one.queue, one.partition, one.seq, one.created_at) for one in messages]
    )
