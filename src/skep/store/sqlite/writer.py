"""Threads that own a connection: the writer, which commits the waiting calls of all callers together, and the reader.

The writer takes all that waits, runs each call (in a savepoint of its own, if there are several) inside one transaction, commits
once (one fsync for many calls), and only then answers (I1): an error undoes its own call only, and a failed commit fails every
call in it. All answers of a commit go back to the event loop in one step. Whatever can come after the answers does.
"""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple, TypeVar

import apsw
import structlog

from skep.errors import Code, SkepError
from skep.store.sqlite.connection import store_error
from skep.store.sqlite.session import Session

CUT_TRIES = 20
"""So often cutting the write-ahead log is tried before a caller is told that it cannot be; each waits a tenth of a second."""
TELL_SECONDS = 60
"""So often the log tells that the file takes no writes. A disk that is nearly full takes one and not the next."""

log = structlog.get_logger("skep.store.sqlite")

T = TypeVar("T")
Work = Callable[[Session], T]


class Call(NamedTuple):
    """Something to do and whom to tell. ``bare`` work runs outside a transaction."""

    work: Work[Any]
    future: asyncio.Future[Any]
    bare: bool = False


class Answer(NamedTuple):
    """What became of a call."""

    future: asyncio.Future[Any]
    value: Any
    error: Exception | None


class ConnectionThread:
    """A thread, the session it alone uses, and the bounded queue of calls before it."""

    def __init__(
        self, name: str, path: str, connect: Callable[[], Session], max_waiting: int, max_together: int
    ) -> None:
        self._path = path
        self._connect = connect
        self._loop = asyncio.get_running_loop()
        self._calls: queue.SimpleQueue[Call | None] = queue.SimpleQueue()
        self._room = asyncio.Semaphore(max_waiting)
        self._max_together = max_together
        self._opened: asyncio.Future[None] = self._loop.create_future()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self.commits = 0

    async def start(self) -> None:
        """Connect in the thread; raises what connecting raised."""
        self._thread.start()
        await self._opened

    async def stop(self) -> None:
        """Finish what waits, then close the connection."""
        if not self._stopping:
            self._stopping = True
            self._calls.put(None)
        await asyncio.to_thread(self._thread.join)

    async def call(self, work: Work[T], bare: bool = False) -> T:
        """Run ``work`` in the thread; its result once it is committed."""
        async with self._room:
            if self._stopping:
                raise SkepError(Code.STOPPING, f"{self._path} is being closed")
            future: asyncio.Future[T] = self._loop.create_future()
            self._calls.put(Call(work, future, bare))
            return await future

    # in the thread

    def _run(self) -> None:
        try:
            session = self._connect()
        except Exception as error:
            self._tell([Answer(self._opened, None, self._translate(error))])
            return
        self._tell([Answer(self._opened, None, None)])
        try:
            while calls := self._take():
                self._serve(session, calls)
        finally:
            session.db.close()

    def _take(self) -> list[Call]:
        """All calls that wait, at least one; none once the thread is to stop."""
        first = self._calls.get()
        if first is None:
            return []
        calls = [first]
        while len(calls) < self._max_together:
            try:
                call = self._calls.get_nowait()
            except queue.Empty:
                break
            if call is None:
                self._calls.put(None)
                break
            calls.append(call)
        return calls

    def _serve(self, session: Session, calls: list[Call]) -> None:
        raise NotImplementedError

    def _translate(self, error: Exception) -> Exception:
        return store_error(error, self._path) if isinstance(error, apsw.Error) else error

    def _tell(self, answers: list[Answer]) -> None:
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            self._loop.call_soon_threadsafe(_deliver, answers)


class Writer(ConnectionThread):
    """The one thread that writes."""

    refused: Exception | None = None
    """Why SQLite did not take the last write; None when it did."""
    _told_at: float | None = None

    async def cut_log(self, done: str) -> None:
        """Leave nothing in the write-ahead log; STORE_BUSY, with what was ``done``, when someone keeps reading it."""
        for _ in range(CUT_TRIES):
            if await self.call(_cut, bare=True):
                return
        raise SkepError(
            Code.STORE_BUSY,
            f"{done}, but another process reads {self._path}, so the write-ahead log still holds the old keys: stop that "
            "reader (a backup?) and repeat this, or wait: the server tries again every second",
        )

    def _serve(self, session: Session, calls: list[Call]) -> None:
        together = [call for call in calls if not call.bare]
        if together:
            self._tell(self._commit(session, together))
        for call in calls:
            if call.bare:
                self._tell([self._alone(session, call)])
        if session.checkpoints is not None:
            session.checkpoints.run_if_due()

    def _alone(self, session: Session, call: Call) -> Answer:
        try:
            return Answer(call.future, call.work(session), None)
        except Exception as error:
            return Answer(call.future, None, self._translate(error))

    def _commit(self, session: Session, calls: list[Call]) -> list[Answer]:
        """Run the calls in one transaction; when SQLite gave up on the whole of it, each in one of its own."""
        changes = session.db.total_changes()
        try:
            session.db.execute("BEGIN IMMEDIATE")
            answers = [self._isolated(session, call) for call in calls] if len(calls) > 1 else [_run(session, calls[0])]
            session.db.execute("COMMIT")
            self.commits += 1
            if self.refused is not None and session.db.total_changes() > changes:
                self._taken()
        except Exception as error:
            self._roll_back(session)
            if isinstance(error, _TransactionLostError) and len(calls) > 1:
                return [answer for call in calls for answer in self._commit(session, [call])]
            cause = error.cause if isinstance(error, _TransactionLostError) else error
            failure = self._translate(cause)
            if isinstance(cause, apsw.Error):
                self._refused(failure)
            return [Answer(call.future, None, failure) for call in calls]
        return answers

    def _refused(self, failure: Exception) -> None:
        """SQLite did not take a write: the disk is full, another process holds the file, or it is damaged."""
        now = time.monotonic()
        if self.refused is None and (self._told_at is None or now - self._told_at >= TELL_SECONDS):
            log.warning("the store takes no writes", error=str(failure))
            self._told_at = now
        self.refused = failure

    def _taken(self) -> None:
        """SQLite takes writes again. A transaction that changed nothing would not have shown it."""
        log.info("the store takes writes again", refused=str(self.refused))
        self.refused = None

    def _isolated(self, session: Session, call: Call) -> Answer:
        """Run a call so that it can fail without the others. For that SQLite keeps what each page was before; one alone can do without."""
        db = session.db
        db.execute("SAVEPOINT call")
        try:
            answer = _run(session, call)
        except Exception as error:
            session.forget()
            if not db.in_transaction:
                raise _TransactionLostError(error) from error
            db.execute("ROLLBACK TO call; RELEASE call")
            return Answer(call.future, None, self._translate(error))
        db.execute("RELEASE call")
        return answer

    def _roll_back(self, session: Session) -> None:
        session.forget()
        with suppress(apsw.Error):  # SQLite may have rolled back by itself
            if session.db.in_transaction:
                session.db.execute("ROLLBACK")


class Reader(ConnectionThread):
    """A thread that reads committed snapshots, one call at a time."""

    def _serve(self, session: Session, calls: list[Call]) -> None:
        self._tell([self._snapshot(session, call) for call in calls])

    def _snapshot(self, session: Session, call: Call) -> Answer:
        session.forget()
        try:
            session.db.execute("BEGIN")
            try:
                return Answer(call.future, call.work(session), None)
            finally:
                session.db.execute("ROLLBACK")
        except Exception as error:
            return Answer(call.future, None, self._translate(error))


class _TransactionLostError(Exception):
    """SQLite rolled the whole transaction back, so earlier calls in it are undone as well."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(str(cause))
        self.cause = cause


def _run(session: Session, call: Call) -> Answer:
    value = call.work(session)
    session.flush()
    return Answer(call.future, value, None)


def _cut(session: Session) -> bool:
    return session.checkpoints is None or session.checkpoints.cut()


def _deliver(answers: list[Answer]) -> None:
    for future, value, error in answers:
        if future.done():
            continue  # the caller was cancelled and no longer waits
        if error is None:
            future.set_result(value)
        else:
            future.set_exception(error)
