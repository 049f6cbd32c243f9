"""The layer `disk`: the disk below one process, or below a family of processes."""

from __future__ import annotations

import asyncio
import mmap
import os
import random
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal

from torture.layers import Layer
from torture.power_cut import Loss, cut_power

CELLS = (
    "root_length", "failures_left", "delay_ms", "full", "room", "journaling", "journal_bytes", "tail", "overflowed", "clock",
    "unsynced", "failed", "delayed", "refused",
)  # fmt: skip
"""As disk.c has them."""
ROOT_BYTES = 4_096
JOURNAL_BYTES = 512 * 1024 * 1024
"""The most that is noted before a power cut. The file has holes where nothing was noted."""
LOOK_SECONDS = 0.01
PATIENCE_SECONDS = 5.0
"""How long a fault waits for the load to meet it."""

NO_GROWTH, NO_WRITES = 1, 2
"""Which writes a full disk refuses: those that make a file longer, or all."""

Meeting = Literal["failed", "delayed", "refused"]


class ProcessDisk:
    """The disk of a process that was started with the layer. Only files below the root are touched."""

    def __init__(self, process: str, folder: Path) -> None:
        self.layer = Layer("disk", process, CELLS, folder)
        journal = Path(f"{self.layer.variable[1]}.journal")
        with journal.open("x+b") as file:
            file.truncate(ROOT_BYTES + JOURNAL_BYTES)
            journal.chmod(0o666)
            self._journal = mmap.mmap(file.fileno(), 0)
        self.layer.write(journal_bytes=JOURNAL_BYTES)

    def holds(self, root: Path) -> None:
        """Say which folder has the files that are meant; until then there are none."""
        self.root = root.resolve()
        name = os.fsencode(self.root)
        self._journal[: len(name)] = name
        self.layer.write(root_length=len(name))

    @contextmanager
    def failing_syncs(self, times: int) -> Iterator[None]:
        """Let so many syncs fail with EIO, or fewer when the block ends before."""
        self.layer.write(failed=0, failures_left=times)
        try:
            yield
        finally:
            self.layer.write(failures_left=0)

    @contextmanager
    def slow_syncs(self, delay_ms: int) -> Iterator[None]:
        """Let all syncs take longer."""
        self.layer.write(delayed=0, delay_ms=delay_ms)
        try:
            yield
        finally:
            self.layer.write(delay_ms=0)

    @contextmanager
    def full(self, how: int, room: int) -> Iterator[None]:
        """Let the disk be full once it has taken ``room`` more bytes; the write that does not fit is cut short."""
        self.layer.write(refused=0, room=room, full=how)
        try:
            yield
        finally:
            self.layer.write(full=0)

    def begin_journal(self) -> None:
        """Note from now on what is written and what is synced, for a power cut."""
        used = min(self.layer.read("tail"), JOURNAL_BYTES)
        self._journal[ROOT_BYTES : ROOT_BYTES + used] = bytes(used)
        self.layer.write(tail=0, overflowed=0, unsynced=0, journaling=1)

    async def noted(self, times: int) -> None:
        """Wait until so many more writes and syncs are in the journal, but not for ever."""
        await self._reached("clock", self.layer.read("clock") + times, PATIENCE_SECONDS)

    def cut_power(self, chance: random.Random) -> Loss:
        """Take back what was not synced since the journal began. All processes that have the files open must have ended."""
        return cut_power(self.root, self.end_journal(), chance)

    def end_journal(self) -> bytes:
        """What was noted since the journal began."""
        self.layer.write(journaling=0)
        if self.layer.read("overflowed"):
            raise RuntimeError(f"more was written before the power cut than {JOURNAL_BYTES} bytes")
        return self._journal[ROOT_BYTES : ROOT_BYTES + self.layer.read("tail")]

    async def met(self, meeting: Meeting, times: int, seconds: float = PATIENCE_SECONDS) -> int:
        """Wait until the process has met a fault so many times, but not for ever; how often it has."""
        await self._reached(meeting, times, seconds)
        return self.layer.read(meeting)

    async def _reached(self, cell: str, value: int, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self.layer.read(cell) < value:  # noqa: ASYNC110 - nobody tells us
                    await asyncio.sleep(LOOK_SECONDS)
