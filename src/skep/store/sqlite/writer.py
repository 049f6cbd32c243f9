"""The one connection that writes. It commits the waiting calls of all callers together.

It takes all that waits, runs each call (in a savepoint of its own, if there are several) inside one transaction, commits once (one
fsync for many calls), and only then answers (I1): an error undoes its own call only, and a failed commit fails every call in it.

Short calls run on the event loop's own thread. In another thread each of their statements would release the interpreter and wait
to get it back, which costs many times more than the statement. Long calls, and commits on a slow disk, run in a thread; short calls
wait for it, since one thread at a time uses the connection. Checkpoints have a thread and a connection of their own: calls wait only
for their end.

Chores come last. A piece of a chore is a transaction of its own, on the event loop unless such pieces take long. It runs when no
caller waits, or when all that waited have been served. While callers come and go, the next piece waits twice as long as the last took.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import apsw
import structlog

from skep.errors import Code, SkepError
from skep.store.sqlite.calls import CallOutcome, StoreCall, T, deliver, translated
from skep.store.sqlite.checkpoints import SHORTEN_BYTES
from skep.store.sqlite.session import Session

CUT_TRIES = 20
"""How often a cut of the write-ahead log is tried before the caller gets an error; each try waits a tenth of a second."""
TELL_SECONDS = 60
"""The log tells at most this often that the file takes no writes. A disk that is nearly full takes one write and refuses the next."""
SLOW_COMMIT_SECONDS = 0.0003
"""When commits take longer than this, they run in the thread, while the event loop goes on. To hand one over costs about 0.1 ms: for one
caller on a quick disk that is more than the commit, and for many callers, whose commits are larger, far less."""
NEWEST_SHARE = 0.2
"""The weight of the latest commit in the moving average of commit times."""
CALLERS_SECONDS = 0.1
"""After a call, more calls are expected for this time; chores make room for them."""
REST = 2.0
"""After a piece of a chore, such callers get this many times the time that it took: a third of the time is for chores."""
LONGEST_REST_SECONDS = 1.0
"""However long a piece took, the next one waits no longer than this."""
PIECE_SECONDS = 0.002
"""About how long a piece of a chore may work before its commit: other calls wait that long for it."""
LONGEST_PIECE_SECONDS = 0.01
"""The same when calls take so long that they wait far longer for each other."""

log = structlog.get_logger("skep.store.sqlite")


class Writer:
    """Calls that write, in transactions that many of them share."""

    def __init__(self, path: str, connect: Callable[[], Session], busy_timeout_ms: int, max_together: int) -> None:
        self._path = path
        self._connect = connect
        self._busy_timeout_ms = busy_timeout_ms
        self._loop = asyncio.get_running_loop()
        self._max_together = max_together
        self._short: deque[StoreCall] = deque()
        self._long: deque[StoreCall] = deque()
        self._pieces: deque[StoreCall] = deque()
        self._turns = deque((self._short, self._long, self._pieces))
        self._planned = False
        self._called_at = -CALLERS_SECONDS
        self._begun_at = 0.0
        self._at_a_piece = False
        self._callers_seconds = 0.0
        """How long the calls of the last transaction took, without its commit: a slow disk is no reason for longer chores."""
        self._rest_ends_at = 0.0
        self._resting: asyncio.TimerHandle | None = None
        self._away = False
        """Whether the thread has the connection."""
        self._commit_seconds = 0.0
        self._stopping = False
        self._drained: asyncio.Future[None] | None = None
        """Done when nothing waits any more; made when somebody waits for that."""
        self._thread = ThreadPoolExecutor(1, "skep-sqlite-writer")
        self._session: Session
        self._connected = False
        self.commits = 0
        self.refused: Exception | None = None
        """Why SQLite did not take the last write; None when it did."""
        self._told_at: float | None = None
        self._is_told = False
        """Whether the log's last line says that SQLite takes no writes."""
        self._changes_before = 0

    async def start(self) -> None:
        """Connect in the thread; raises what connecting raised."""
        try:
            self._session = await self._loop.run_in_executor(self._thread, self._connect)
        except Exception as error:
            raise translated(error, self._path) from error
        self._connected = True
        self._session.db.set_busy_timeout(0)

    async def stop(self) -> None:
        """Finish waiting calls, then close the connection."""
        self._stopping = True
        if self._planned or self._away or self._pieces:
            self._drained = self._drained or self._loop.create_future()
            self._plan()
            await asyncio.wait([self._drained])
        if self._connected:
            self._connected = False
            await self._loop.run_in_executor(self._thread, self._session.close)
        self._thread.shutdown()

    def call(
        self,
        work: Callable[..., T],
        arguments: tuple[Any, ...] = (),
        *,
        short: bool = False,
        bare: bool = False,
        piece: bool = False,
    ) -> asyncio.Future[T]:
        """Run ``work`` with the session and these arguments; the future has its result after the commit.

        ``short`` work may run on the event loop, and a ``piece`` of a chore runs behind all callers.
        """
        if self._stopping:
            raise SkepError(Code.STOPPING, f"{self._path} is being closed")
        if piece:
            waiting = self._pieces
        else:
            waiting = self._short if short else self._long
            self._called_at = time.perf_counter()
        future: asyncio.Future[T] = self._loop.create_future()
        waiting.append(StoreCall(work, arguments, future, bare, not short))
        if not self._planned:
            self._plan()
        return future

    @property
    def piece_seconds(self) -> float:
        """About how long the next piece of a chore may work: longer when calls take long, so that chores keep up with them."""
        return min(LONGEST_PIECE_SECONDS, max(PIECE_SECONDS, self._callers_seconds / REST))

    async def cut_log_if_due(self) -> None:
        """Cut the write-ahead log if it may hold destroyed data, or is very long: in steps that other calls go between.

        Where a step fails, or as much was written meanwhile, the cut takes what is there: it must come to an end.
        """
        checkpoints = self._session.checkpoints
        if checkpoints is None or not checkpoints.wants_cut:
            return
        await asyncio.wrap_future(checkpoints.move_ahead())
        for limit in range(checkpoints.log_bytes - SHORTEN_BYTES, SHORTEN_BYTES, -SHORTEN_BYTES):
            if not await self.call(_shorten, (limit,), bare=True, piece=True):
                break
        await self.call(_cut, bare=True)

    async def cut_log(self, done: str) -> None:
        """Cut the write-ahead log at once, since somebody waits for it; STORE_BUSY, with the text ``done``, when a reader keeps using it."""
        for _ in range(CUT_TRIES):
            if await self.call(_cut, bare=True):
                return
        raise SkepError(
            Code.STORE_BUSY,
            f"{done}, but another process reads {self._path}, so the write-ahead log still holds the old keys: stop that "
            "reader (a backup?) and repeat this, or wait: the server tries again every second",
        )

    # on the event loop

    def _plan(self) -> None:
        if not self._planned and not self._away:
            self._planned = True
            self._loop.call_soon(self._pass)

    def _pass(self) -> None:
        """Serve waiting calls: short calls, long calls and a piece of a chore take turns."""
        self._planned = False
        turns = self._turns
        for _ in range(len(turns)):
            waiting = turns[0]
            turns.rotate(-1)
            if waiting and (calls := self._take(waiting)):
                self._begun_at, self._at_a_piece = time.perf_counter(), waiting is self._pieces
                if calls[0].long:
                    self._hand_over(self._served, calls)
                else:
                    deliver(self._committed(calls, here=True))
                    if not self._away:
                        self._checkpoint()
                break
        self._go_on()

    def _take(self, waiting: deque[StoreCall]) -> list[StoreCall]:
        """The calls of the next transaction. A piece of a chore has one of its own, once its rest is over."""
        if waiting is self._pieces:
            return [waiting.popleft()] if self._rest_left() <= 0 else []
        if len(waiting) <= self._max_together:
            calls = list(waiting)
            waiting.clear()
            return calls
        return [waiting.popleft() for _ in range(self._max_together)]

    def _go_on(self) -> None:
        if self._away:
            return
        self._end()
        if self._short or self._long or (self._pieces and self._rest_left() <= 0):
            self._plan()
        elif self._pieces:
            self._rest()
        elif self._drained is not None and not self._drained.done():
            self._drained.set_result(None)

    def _end(self) -> None:
        """Note the end of a turn. After a piece of a chore the next piece waits, if there were calls lately."""
        if not self._begun_at:
            return
        now = time.perf_counter()
        took, self._begun_at = now - self._begun_at, 0.0
        if self._at_a_piece:
            callers = now - self._called_at < CALLERS_SECONDS + took
            self._rest_ends_at = now + min(REST * took, LONGEST_REST_SECONDS) if callers else now

    def _rest_left(self) -> float:
        left = self._rest_ends_at - time.perf_counter()
        # A longer rest is impossible, so the clock has jumped: chores must not wait for it.
        return 0.0 if self._stopping or left > LONGEST_REST_SECONDS else left

    def _rest(self) -> None:
        if self._resting is None:
            self._resting = self._loop.call_later(self._rest_left(), self._rested)

    def _rested(self) -> None:
        self._resting = None
        self._plan()

    def _hand_over(
        self, work: Callable[..., list[CallOutcome]], *arguments: list[StoreCall] | list[CallOutcome]
    ) -> None:
        self._away = True
        self._thread.submit(self._there, work, arguments)

    def _back(self, answers: list[CallOutcome]) -> None:
        """Go on after the thread has given the connection back."""
        deliver(answers)
        self._checkpoint()
        self._away = False
        self._go_on()

    def _checkpoint(self) -> None:
        checkpoints = self._session.checkpoints
        if checkpoints is not None and checkpoints.due:
            checkpoints.begin(lambda: self._loop.call_soon_threadsafe(self._end_checkpoint))

    def _end_checkpoint(self) -> None:
        """Let the writer move the pages that were committed during a checkpoint, so that the log can start again."""
        if not self._stopping:
            self._long.append(StoreCall(_end_checkpoint, (), self._loop.create_future(), bare=True, long=True))
            self._plan()

    # in the thread

    def _there(
        self, work: Callable[..., list[CallOutcome]], arguments: tuple[list[StoreCall] | list[CallOutcome], ...]
    ) -> None:
        self._session.db.set_busy_timeout(self._busy_timeout_ms)
        try:
            answers = work(*arguments)
        finally:
            self._session.db.set_busy_timeout(0)
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            self._loop.call_soon_threadsafe(self._back, answers)

    def _served(self, calls: list[StoreCall]) -> list[CallOutcome]:
        together = [call for call in calls if not call.bare]
        answers = self._committed(together) if together else []
        return answers + [self._alone(call) for call in calls if call.bare]

    def _alone(self, call: StoreCall) -> CallOutcome:
        try:
            return CallOutcome(call.future, call.work(self._session, *call.arguments), None)
        except Exception as error:
            return CallOutcome(call.future, None, translated(error, self._path))

    # in either

    def _committed(self, calls: list[StoreCall], *, here: bool = False) -> list[CallOutcome]:
        """Run the calls in one transaction. On the event loop (``here``) the list is empty when the thread goes on with them."""
        session = self._session
        begun = time.perf_counter()
        try:
            session.db.execute("BEGIN IMMEDIATE")
            if self.refused is not None:
                self._changes_before = session.db.total_changes()
            if len(calls) == 1:
                call = calls[0]
                answers = [CallOutcome(call.future, call.work(session, *call.arguments), None)]
                session.flush()
            else:
                answers = [self._isolated(call) for call in calls]
        except Exception as error:
            if here and isinstance(error, apsw.BusyError) and not session.db.in_transaction:
                self._hand_over(self._served, calls)  # another process has the file: the thread waits for it
                return []
            return self._failed(calls, error)
        if not self._at_a_piece:
            self._callers_seconds = time.perf_counter() - begun
        if here and self._commit_seconds > SLOW_COMMIT_SECONDS:
            self._hand_over(self._ended, calls, answers)
            return []
        return self._ended(calls, answers)

    def _ended(self, calls: list[StoreCall], answers: list[CallOutcome]) -> list[CallOutcome]:
        """Commit, and measure its time."""
        begun = time.perf_counter()
        db = self._session.db
        try:
            db.execute("COMMIT")
        except Exception as error:
            return self._failed(calls, error)
        self._commit_seconds += (time.perf_counter() - begun - self._commit_seconds) * NEWEST_SHARE
        self.commits += 1
        if self.refused is not None and db.total_changes() > self._changes_before:
            self._taken()
        return answers

    def _failed(self, calls: list[StoreCall], error: Exception) -> list[CallOutcome]:
        """Undo the transaction. If SQLite rolled it back because of one call, run each call in a transaction of its own."""
        self._roll_back()
        if isinstance(error, _TransactionLostError) and len(calls) > 1:
            return [answer for call in calls for answer in self._committed([call])]
        cause = error.cause if isinstance(error, _TransactionLostError) else error
        failure = translated(cause, self._path)
        if isinstance(cause, apsw.Error):
            self._refused(failure)
        return [CallOutcome(call.future, None, failure) for call in calls]

    def _refused(self, failure: Exception) -> None:
        """Note that SQLite refused a write: the disk is full, another process holds the file, or it is damaged."""
        now = time.monotonic()
        if not self._is_told and (self._told_at is None or now - self._told_at >= TELL_SECONDS):
            log.warning("the store takes no writes", error=str(failure))
            self._told_at, self._is_told = now, True
        self.refused = failure

    def _taken(self) -> None:
        """Note that SQLite takes writes again. Only a transaction with changes shows it."""
        if self._is_told:
            log.info("the store takes writes again", refused=str(self.refused))
        self.refused, self._is_told = None, False

    def _isolated(self, call: StoreCall) -> CallOutcome:
        """Run a call in a savepoint, so that it can fail without the others. SQLite keeps the old pages for it; a single call does without."""
        db = self._session.db
        db.execute("SAVEPOINT call")
        try:
            answer = CallOutcome(call.future, call.work(self._session, *call.arguments), None)
            self._session.flush()
        except Exception as error:
            self._session.forget()
            if not db.in_transaction:
                raise _TransactionLostError(error) from error
            db.execute("ROLLBACK TO call; RELEASE call")
            return CallOutcome(call.future, None, translated(error, self._path))
        db.execute("RELEASE call")
        return answer

    def _roll_back(self) -> None:
        self._session.forget()
        with suppress(apsw.Error):  # SQLite may have rolled back by itself
            if self._session.db.in_transaction:
                self._session.db.execute("ROLLBACK")


class _TransactionLostError(Exception):
    """SQLite rolled the whole transaction back, so earlier calls in it are undone as well."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(str(cause))
        self.cause = cause


def _end_checkpoint(session: Session) -> None:
    if session.checkpoints is not None:
        session.checkpoints.end()


def _shorten(session: Session, limit_bytes: int) -> bool:
    return session.checkpoints is not None and session.checkpoints.shorten(limit_bytes)


def _cut(session: Session) -> bool:
    return session.checkpoints is None or session.checkpoints.cut()
