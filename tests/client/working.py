"""Words that the tests of workers share."""

from __future__ import annotations

import dataclasses

import skep


@dataclasses.dataclass
class Order:
    number: int


def left_in(client: skep.Client, queue: str) -> int:
    return client.stats(queue).stats.depth
