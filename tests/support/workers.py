"""Several processes run the tests that one has collected: `--workers N`.

To import all modules and collect all tests takes a quarter of a minute, and three times that where nothing is compiled yet. So it is
done once, and the workers are forked from the process that did it. That one, the parent, runs no test: it gives out groups of tests
(`Grouping`) in their order, each to the worker that is first to ask, and reports what they tell.

A worker asks for its next group before the last test of the one it has, so that it knows what of its fixtures to keep. When one dies,
the test it ran has failed, another takes its place, and the rest of its group.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import traceback
import warnings
from collections import deque
from collections.abc import Callable, Iterator
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from typing import Any

import pytest

Grouping = Callable[[str], str]
"""The name of the group that a test is in, by the test's id."""

END: list[int] = []
"""The answer to who asks for a group when there is none."""


class Worker:
    """A worker as its parent sees it: what it has been given and not yet done, the test that it runs being the first."""

    def __init__(self, number: int, pid: int, connection: Connection) -> None:
        self.number = number
        self.pid = pid
        self.connection = connection
        self.given: deque[int] = deque()


class Workers:
    """The plugin, in the parent."""

    def __init__(self, count: int, grouping: Grouping) -> None:
        self._count = count
        self._grouping = grouping
        self._running: list[Worker] = []
        self._groups: deque[list[int]] = deque()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        if session.config.option.collectonly or session.testsfailed or not session.items:
            return None  # pytest knows what to do
        by_name: dict[str, list[int]] = {}
        for index, item in enumerate(session.items):
            by_name.setdefault(self._grouping(item.nodeid), []).append(index)
        self._groups.extend(by_name.values())
        session.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined] # one for all workers
        reporter: Any = session.config.pluginmanager.get_plugin("terminalreporter")
        reporter.showfspath = False  # tests of several files come in turns
        try:
            for number in range(min(self._count, len(self._groups))):
                self._start(session, number)
            while self._running:
                self._hear(session)
        finally:
            self._end()
        if session.shouldfail:
            raise session.Failed(session.shouldfail)
        if session.shouldstop:
            raise session.Interrupted(session.shouldstop)
        return True

    def _start(self, session: pytest.Session, number: int) -> None:
        ours, theirs = Pipe()
        with warnings.catch_warnings():
            # Libraries that were imported have threads. Those libraries cope: no test has used one so far.
            warnings.simplefilter("ignore", DeprecationWarning)
            pid = os.fork()
        if pid == 0:
            ours.close()
            for worker in self._running:
                worker.connection.close()
            work(session, number, theirs)
        theirs.close()
        self._running.append(Worker(number, pid, ours))

    def _hear(self, session: pytest.Session) -> None:
        ready = wait([worker.connection for worker in self._running])
        for worker in [worker for worker in self._running if worker.connection in ready]:
            kind, content = told(worker.connection)
            if kind == "end":
                self._ended(session, worker)
            elif kind == "ask":
                ending = bool(session.shouldfail or session.shouldstop) or not self._groups
                group = END if ending else self._groups.popleft()
                worker.given.extend(group)
                worker.connection.send(group)
            else:
                worker.given.popleft()
                report_all(session.config, content)

    def _ended(self, session: pytest.Session, worker: Worker) -> None:
        """A worker is gone. With work left, or with a status that tells of trouble, somebody has to know."""
        worker.connection.close()
        self._running.remove(worker)
        _, status = os.waitpid(worker.pid, 0)
        code = os.waitstatus_to_exitcode(status)
        ending = bool(session.shouldfail or session.shouldstop)
        if code == 0 and (ending or not worker.given):
            return
        index = worker.given.popleft() if worker.given else None
        item = session.items[index if index is not None else 0]
        what = "while it ran this test" if index is not None else "after its last test, so this one stands for all"
        text = f"worker {worker.number} ended with {code} {what}"
        crash = pytest.TestReport(item.nodeid, item.location, {}, "failed", text, "call")
        session.config.hook.pytest_runtest_logreport(report=crash)
        if worker.given:
            self._groups.appendleft(list(worker.given))
        if self._groups and not ending:
            self._start(session, worker.number)

    def _end(self) -> None:
        """Let the workers that are left, after an interrupt, undo what they did, and wait for them."""
        for worker in self._running:
            with contextlib.suppress(ProcessLookupError):
                os.kill(worker.pid, signal.SIGINT)
        for worker in self._running:
            while told(worker.connection)[0] != "end":
                pass
            os.waitpid(worker.pid, 0)


def told(connection: Connection) -> tuple[str, Any]:
    """What a worker told, or that it is gone."""
    try:
        kind, content = connection.recv()
    except (EOFError, ConnectionResetError):
        return "end", None
    return kind, content


def report_all(config: pytest.Config, reports: list[Any]) -> None:
    """Report a test that a worker has done: how it was set up, how it went, and what became of its fixtures."""
    phases = [config.hook.pytest_report_from_serializable(config=config, data=data) for data in reports]
    for report in phases:
        config.hook.pytest_runtest_logreport(report=report)
    config.hook.pytest_runtest_logfinish(nodeid=phases[0].nodeid, location=phases[0].location)


class Noting:
    """The plugin, in a worker: it notes what is reported, for the parent to be told at the end of a test."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._noted: list[Any] = []

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._noted.append(self._config.hook.pytest_report_to_serializable(config=self._config, report=report))

    def take(self) -> list[Any]:
        """What was noted since the last time."""
        noted, self._noted = self._noted, []
        return noted


def work(session: pytest.Session, number: int, connection: Connection) -> None:
    """Be a worker to the end of the process."""
    code = 1
    try:
        run(session, connection, prepare(session.config, number))
        code = 0
    except (KeyboardInterrupt, EOFError, BrokenPipeError):
        pass  # whoever started us is about to end
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(BaseException):
            session._setupstate.teardown_exact(None)
        with contextlib.suppress(BaseException):
            atexit._run_exitfuncs()
        os._exit(code)


def prepare(config: pytest.Config, number: int) -> Noting:
    """Have what may not be shared with the parent: where output and temporary files go, and who writes to the terminal."""
    plugins = config.pluginmanager
    capturing: Any = plugins.get_plugin("capturemanager")
    capturing.stop_global_capturing()
    capturing.start_global_capturing()
    for name in ("terminalreporter", "terminalprogress"):
        if (plugin := plugins.get_plugin(name)) is not None:
            plugins.unregister(plugin)
    factory: Any = config._tmp_path_factory  # type: ignore[attr-defined] # pytest has no other way to say where
    atexit.unregister(factory._exit_stack.close)
    factory._basetemp = factory.getbasetemp() / f"worker-{number}-{os.getpid()}"
    factory._basetemp.mkdir(mode=0o700)
    noting = Noting(config)
    plugins.register(noting)
    return noting


def run(session: pytest.Session, connection: Connection, noting: Noting) -> None:
    """Run one test after the other, each when the one after it is known."""
    for index, following in with_next(given(connection)):
        item = session.items[index]
        nextitem = None if following is None else session.items[following]
        session.config.hook.pytest_runtest_protocol(item=item, nextitem=nextitem)
        connection.send(("done", noting.take()))
        if session.shouldfail or session.shouldstop:
            return


def given(connection: Connection) -> Iterator[int]:
    """What the parent gives out, group by group."""
    while True:
        connection.send(("ask", None))
        if not (group := connection.recv()):
            return
        yield from group


def with_next(indexes: Iterator[int]) -> Iterator[tuple[int, int | None]]:
    """Each together with the one after it."""
    current = next(indexes, None)
    while current is not None:
        following = next(indexes, None)
        yield current, following
        current = following
