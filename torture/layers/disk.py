"""The layer `disk`: the disk below one process, or below a family of processes."""

from __future__ import annotations

import asyncio
import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal

from torture.layers import Layer

CELLS = (
    "root_length", "failures_left", "delay_ms", "full", "room", "journaling", "journal_bytes", "tail", "overflowed", "clock", "failed",
    "delayed", "refused",
)  # fmt: skip
"""As disk.c has them."""
ROOT_BYTES = 4_096
JOURNAL_BYTES = 512 * 1024 * 1024
"""The most that is noted before a power cut. The file has holes where nothing was noted."""
LOOK_SECONDS = 0.01
PATIENCE_SECONDS = 5.0
"""How long a fault waits for the load to meet it."""

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

    async def met(self, meeting: Meeting, times: int) -> int:
        """Wait until the process has met a fault so many times, but not for ever; how often it has."""
        with suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE_SECONDS):
                while self.layer.read(meeting) < times:  # noqa: ASYNC110 - nobody tells us
                    await asyncio.sleep(LOOK_SECONDS)
        return self.layer.read(meeting)
