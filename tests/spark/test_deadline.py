"""`retrySeconds` is a deadline, whatever a server does: it is away, or it takes connections and says nothing."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from skep.errors import Code, SkepError
from skep.spark.link import PAUSE_SECONDS, Link, Log
from skep.spark.options import ServerConnection

AWAY = SkepError(Code.SERVER_UNREACHABLE, "nobody is there")


class Time:
    """A clock that moves only when somebody waits."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now

    def wait(self, seconds: float) -> None:
        self.now += seconds


def linked(url: str, seconds: float, time: Time | None = None) -> Link:
    connection = ServerConnection((url,), "default", None, seconds)
    return Link(connection) if time is None else Link(connection, now=time, sleep=time.wait)


def test_each_try_has_what_the_tries_before_it_have_left() -> None:
    time = Time()
    link = linked("http://127.0.0.1:1", 5.0, time)
    left: list[float | None] = []

    def ask() -> None:
        left.append(link.time_left())
        time.wait(1.5)
        raise AWAY

    with pytest.raises(SkepError, match="This went on for 5 s"):
        link.patiently(ask)
    assert left == [5.0, 5.0 - 1.5 - PAUSE_SECONDS, 5.0 - 2 * (1.5 + PAUSE_SECONDS)]
    assert link.time_left() is None


def test_a_try_that_takes_all_of_the_time_is_the_last() -> None:
    time, tries = Time(), []

    def ask() -> None:
        tries.append(time())
        time.wait(30.0)
        raise AWAY

    with pytest.raises(SkepError):
        linked("http://127.0.0.1:1", 5.0, time).patiently(ask)
    assert len(tries) == 1


class Silent:
    """A socket that takes connections, counts them, and never says anything."""

    def __init__(self) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        self.taken: list[socket.socket] = []
        self._thread = threading.Thread(target=self._take, daemon=True)
        self._thread.start()

    def _take(self) -> None:
        try:
            while True:
                self.taken.append(self._listening.accept()[0])
        except OSError:
            return

    def close(self) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._thread.join()
        for one in self.taken:
            one.close()


@contextmanager
def silent() -> Iterator[Silent]:
    server = Silent()
    try:
        yield server
    finally:
        server.close()


def test_a_silent_server_is_given_up_at_the_first_try_when_that_takes_all_of_the_time() -> None:
    with silent() as server:
        link = linked(server.url, 1.0)
        with pytest.raises(SkepError, match="retrySeconds"):
            link.bounds("orders")
        with pytest.raises(SkepError, match="retrySeconds"):
            list(link.read(Log(queue="orders", first=1, last=9)))
        with pytest.raises(SkepError, match="retrySeconds"):
            link.table("leases", queue="orders")
        assert len(server.taken) == 3
