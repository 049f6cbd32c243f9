"""One SQLite file, or a database in memory: its writer, its readers, and how verbs use them.

A verb is a function of a session. The writer runs it whole or not at all; a reader runs it in one snapshot. `written`, `read` and
`chore` make methods of a store from such functions. In `:memory:` there is one connection, so reads go through the writer, too.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar, TypeVarTuple

import apsw

from skep.errors import Code, SkepError
from skep.model.chores import Chore
from skep.store.pieces import Pieces
from skep.store.sqlite import vacuum
from skep.store.sqlite.calls import Piece, Reader
from skep.store.sqlite.checkpoints import Checkpoints
from skep.store.sqlite.connection import MEMORY, FileLock, Knobs, migrate, open_reader, open_writer
from skep.store.sqlite.session import Session
from skep.store.sqlite.writer import PIECE_SECONDS, Writer
from skep.store.statements import load_statements

SQL = load_statements(__package__, "operations")

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
P = ParamSpec("P")

MANY_MESSAGES = 2_000
"""A call that touches this many messages runs in a thread: on the event loop it would hold up other callers."""


class Database:
    """The connections to one file. One process at a time has it; all its callers share one connection that writes."""

    def __init__(self, path: str | Path, **knobs: int) -> None:
        """``knobs`` are those of `Knobs`."""
        self._path = os.fspath(path)
        self._knobs = Knobs(**knobs)
        self._lock: FileLock | None = None
        self._writer: Writer | None = None
        self.reader: Reader | None = None
        self._bulk_readers: list[Reader] = []
        self._bulk_start = asyncio.Lock()
        self._bulk_turn = 0
        self._pieces = Pieces(PIECE_SECONDS)
        self._shrinking = vacuum.Shrinking()

    @property
    def commits(self) -> int:
        """How many transactions the writer has committed since it was opened."""
        return self._writer.commits if self._writer is not None else 0

    async def open(self) -> None:
        """Lock the file, connect and migrate."""
        knobs = self._knobs
        self._writer = Writer(self._path, self._connect, knobs.busy_timeout_ms, knobs.max_calls_per_commit)
        try:
            await self._writer.start()
            if self._path != MEMORY:
                self.reader = self._make_reader("reader")
                await self.reader.start()
        except BaseException:
            await self.close()
            raise

    def _connect(self) -> Session:
        if self._path != MEMORY:
            self._lock = FileLock(self._path, self._knobs.busy_timeout_ms)
            vacuum.drop_unfinished(Path(self._path).resolve())
        db = open_writer(self._path, self._knobs)
        try:
            migrate(db, self._path)
            db.execute(SQL["release_claims"])
        except BaseException:
            db.close()
            raise
        if self._path == MEMORY:
            return Session(db)
        checkpoints = Checkpoints(db, self._knobs.checkpoint_pages, lambda: open_writer(self._path, self._knobs))
        with suppress(apsw.Error):  # a full disk: the next `maintain` tries again
            checkpoints.cut()  # the last process may have died before it could
        return Session(db, checkpoints)

    def _make_reader(self, name: str) -> Reader:
        return Reader(f"skep-sqlite-{name}", self._path, self._connect_reader)

    def _connect_reader(self) -> Session:
        return Session(open_reader(self._path, self._knobs))

    async def close(self) -> None:
        """Finish running calls, then close the connections and release the file."""
        for thread in (*self._bulk_readers, self.reader, self._writer):
            if thread is not None:
                await thread.stop()
        self.reader, self._writer, self._bulk_readers = None, None, []
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    @property
    def writer(self) -> Writer:
        """The one connection that writes; STORE_UNAVAILABLE when the store is not open."""
        if self._writer is None:
            raise SkepError(Code.STORE_UNAVAILABLE, f"{self._path} is not open")
        return self._writer

    async def _write(self, work: Callable[[Session, *Ts], T], *arguments: *Ts) -> T:
        return await self.writer.call(work, arguments)

    async def piece(self, kind: str, work: Piece[T], most: int, more: Callable[[T], bool]) -> T:
        """Run a piece of a chore behind all callers. ``work`` gets the number of messages it may touch, at most ``most``.

        ``more`` tells from its result whether there is more to do.
        """
        writer, pieces = self.writer, self._pieces

        def piece(session: Session) -> T:
            pieces.seconds = writer.piece_seconds
            return pieces.measured(kind, most, lambda size: work(session, size), more)

        return await writer.call(piece, short=not pieces.is_long(kind), piece=True)

    async def destroy(self, done: str, work: Callable[[Session, *Ts], T], *arguments: *Ts) -> T:
        """Write, then cut the write-ahead log, so that it holds no destroyed data. ``done`` is for the error when a cut fails."""
        value = await self._write(work, *arguments)
        if self._path != MEMORY:
            await self.writer.cut_log(done)
        return value

    async def read_bulk(self, work: Callable[[Session, *Ts], T], *arguments: *Ts) -> T:
        """Run a long read on one of the bulk readers, so that short reads do not wait for it."""
        if self.reader is None:
            return await self.writer.call(work, arguments)
        async with self._bulk_start:
            while len(self._bulk_readers) < self._knobs.bulk_readers:
                reader = self._make_reader(f"bulk-reader-{len(self._bulk_readers)}")
                await reader.start()
                self._bulk_readers.append(reader)
        self._bulk_turn += 1
        return await self._bulk_readers[self._bulk_turn % len(self._bulk_readers)].call(work, arguments)


class Part:
    """A part of a store with a name of its own, like ``store.records``. It uses the store's connections."""

    def __init__(self, db: Database) -> None:
        self._db = db

    @property
    def writer(self) -> Writer:
        """As `Database.writer`."""
        return self._db.writer

    @property
    def reader(self) -> Reader | None:
        """As `Database.reader`."""
        return self._db.reader


def written(
    verb: Callable[Concatenate[Session, P], T], messages: Callable[..., int] | None = None
) -> Callable[Concatenate[Database | Part, P], Coroutine[Any, Any, T]]:
    """A verb that writes. ``messages`` counts the messages that a call may touch: a call with few runs on the event loop."""

    async def call(self: Database | Part, /, *args: P.args, **kwargs: P.kwargs) -> T:
        short = messages is not None and messages(*args, **kwargs) < MANY_MESSAGES
        return await self.writer.call(partial(verb, **kwargs) if kwargs else verb, args, short=short)

    return call


def read(
    verb: Callable[Concatenate[Session, P], T],
) -> Callable[Concatenate[Database | Part, P], Coroutine[Any, Any, T]]:
    """A verb that reads."""

    async def call(self: Database | Part, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await (self.reader or self.writer).call(partial(verb, **kwargs) if kwargs else verb, args)

    return call


def chore(
    verb: Callable[Concatenate[Session, P], Chore],
) -> Callable[Concatenate[Database, P], Coroutine[Any, Any, Chore]]:
    """A verb that does a piece of a chore. Its last argument (by place) is how many messages the piece may touch."""
    work: Callable[..., Chore] = verb

    async def call(self: Database, /, *args: P.args, **kwargs: P.kwargs) -> Chore:
        limit: Any = args[-1]
        return await self.piece(
            verb.__name__,
            lambda session, size: work(session, *args[:-1], size, **kwargs),
            limit,
            lambda done: done.more,
        )

    return call
