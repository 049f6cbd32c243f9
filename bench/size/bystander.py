"""The bystander: pushes single messages to a queue of its own at a fixed rate, and notes how long each took.

It is a process of its own, so what makes the crowd does not hold it up.
"""

from __future__ import annotations

import time

from msgspec import Struct

from bench.at_rate import at_rate
from bench.peers.lines import Way
from bench.peers.loads import lines
from bench.peers.skep_line import SkepLine
from bench.report import percentile

QUEUE = "bystander"
SIZE = 300
CONNECTIONS = 16


class Felt(Struct, frozen=True):
    """How long the bystander's pushes took, in milliseconds: half of them, all but one in a hundred, and the longest."""

    p50: float
    p99: float
    longest: float


async def pushes(address: str, per_second: float, seconds: float) -> Felt:
    """Push for some seconds; a push that waits for a connection has waited for the server."""
    way = Way("skep", address, QUEUE, 1, SIZE, ())
    taken: list[float] = []

    async def push(line: SkepLine, came_at: float) -> None:
        await line.push(0)
        taken.append((time.perf_counter() - came_at) * 1e3)

    async with lines(way, CONNECTIONS) as opened:
        await at_rate([line for line in opened if isinstance(line, SkepLine)], per_second, seconds, push)
    return Felt(percentile(taken, 0.5), percentile(taken, 0.99), max(taken))
