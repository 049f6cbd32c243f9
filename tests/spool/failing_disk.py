"""A disk that fails when it is told to, as SQLite sees it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import apsw


class FailingVfs(apsw.VFS):
    """The file system, but that calls fail while they are named in ``failing``."""

    def __init__(self) -> None:
        self.base = apsw.vfs_names()[0]
        self.failing: set[str] = set()
        self.syncs = 0
        super().__init__("failing", self.base, makedefault=True)

    def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:
        return FailingFile(self, name, flags)


class FailingFile(apsw.VFSFile):
    """Half of a write that fails gets there."""

    def __init__(self, vfs: FailingVfs, name: Any, flags: list[int]) -> None:
        super().__init__(vfs.base, name, flags)
        self.vfs = vfs

    def xWrite(self, data: bytes, offset: int) -> None:
        if "write" in self.vfs.failing:
            super().xWrite(data[: len(data) // 2], offset)
            raise apsw.FullError("it broke")
        super().xWrite(data, offset)

    def xSync(self, flags: int) -> None:
        self.vfs.syncs += 1
        if "sync" in self.vfs.failing:
            raise apsw.IOError("it broke")
        super().xSync(flags)


@contextmanager
def failing_disk() -> Iterator[FailingVfs]:
    vfs = FailingVfs()
    try:
        yield vfs
    finally:
        vfs.unregister()
        apsw.set_default_vfs(vfs.base)
