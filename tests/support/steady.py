"""Producers that push at a steady rate over HTTP, each to a partition of its own and one message after the other, and what must be
true of the log afterwards: nothing answered is lost, nothing is there twice, and each partition is in the order of its pushes.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any


class Steady:
    """Pushes "partition-number" again and again. What is not answered well is not repeated: it may be stored or not."""

    def __init__(
        self, ports: Callable[[], int], *, producers: int, per_second: float, queue: str = "q", more: Any = None
    ) -> None:
        self._port = ports
        self._producers = producers
        self._pause = producers / per_second
        self._queue = queue
        self._more = more or {}
        self._ending = asyncio.Event()
        self.answered: dict[str, list[int]] = {}
        self.doubtful: set[str] = set()
        self.kinds: Counter[str] = Counter()
        self.progress = asyncio.Condition()

    async def run(self) -> None:
        """Until `end`."""
        await asyncio.gather(*(self._produce(f"p{number}") for number in range(self._producers)))

    def end(self) -> None:
        self._ending.set()

    @property
    def total(self) -> int:
        return sum(map(len, self.answered.values()))

    async def reached(self, more: int) -> None:
        """Return once so many more have been answered."""
        goal = self.total + more
        async with asyncio.timeout(120), self.progress:
            await self.progress.wait_for(lambda: self.total >= goal)

    async def seen(self, kind: str) -> None:
        """Return once an answer of this kind was given."""
        async with asyncio.timeout(120), self.progress:
            await self.progress.wait_for(lambda: self.kinds[kind] > 0)

    async def _produce(self, partition: str) -> None:
        numbers = self.answered.setdefault(partition, [])
        loop = asyncio.get_running_loop()
        number = 0
        link: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        due = loop.time()
        while not self._ending.is_set():
            due = max(due + self._pause, loop.time())
            await asyncio.sleep(due - loop.time())
            number += 1
            text = f"{partition}-{number}"
            self.doubtful.add(text)
            try:
                if link is None:
                    link = await asyncio.open_connection("127.0.0.1", self._port())
                kind = await asyncio.wait_for(self._push(*link, partition, text), 60)
            except (OSError, asyncio.IncompleteReadError, ValueError):
                kind = "lost"
                if link is not None:
                    link[1].close()
                link = None
            if kind in ("stored", "buffered"):
                self.doubtful.discard(text)
                numbers.append(number)
            async with self.progress:
                self.kinds[kind] += 1
                self.progress.notify_all()
        if link is not None:
            link[1].close()
            with suppress(OSError):
                await link[1].wait_closed()

    async def _push(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, partition: str, text: str) -> str:
        item = {"queue": self._queue, "partition": partition, "payload": text}
        body = json.dumps({"items": [item], **self._more}).encode()
        writer.write(b"POST /api/v1/push HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\n\r\n" % len(body) + body)
        head = await reader.readuntil(b"\r\n\r\n")
        status = int(head.split(b" ", 2)[1])
        length = next(int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
        answer = json.loads(await reader.readexactly(length))
        if status != 201:
            return str(status)
        return str(answer["messages"][0]["status"])

    def check(self, payloads: Sequence[str]) -> None:
        """What must be true of the log, given in its order (I1, I2, I4, I13)."""
        seen = [json.loads(payload) for payload in payloads]
        doubled = [text for text, count in Counter(seen).items() if count > 1]
        assert not doubled, f"stored twice: {doubled[:10]}"
        there = set(seen)
        answered = {f"{partition}-{number}" for partition, numbers in self.answered.items() for number in numbers}
        assert not answered - there, f"lost: {sorted(answered - there)[:10]} of {len(answered)}"
        assert there <= answered | self.doubtful, "something nobody pushed"
        last: dict[str, int] = {}
        for text in seen:
            partition, _, number = text.partition("-")
            assert int(number) > last.get(partition, 0), f"out of order: {text} after {last[partition]}"
            last[partition] = int(number)
