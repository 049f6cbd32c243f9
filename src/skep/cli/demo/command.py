"""`skep demo`: from start to end, leaving nothing behind."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from skep.cli.connection import Flag
from skep.cli.exits import INTERRUPTED, OK, USER, complain, note
from skep.errors import SkepError


def demo(*, once: Flag = False, lake: str | None = None) -> int:
    """Watch an order story run through a server of its own, and on into Spark.

    It starts a server on SQLite in a temporary folder, lets producers and
    workers loose on it, and checks at the end that everything adds up.
    Then pipelines on Spark archive it all, and say how it went.
    It keeps serving until Ctrl-C, which takes all of it away.

    For example:
        skep demo
        skep demo --once
        skep demo --once --lake shop-lake

    Parameters
    ----------
    once
        End after the story: exit code 0 if every check held, else 1.
    lake
        A folder for tables and report that stays.
    """
    from skep.cli.demo.screen import make_screen
    from skep.cli.demo.server import demo_server
    from skep.cli.demo.story import keep_serving, told

    held: bool | None = None
    with _ending_in_order():
        try:
            with make_screen() as screen, demo_server() as served, told(served, screen, lake) as story:
                held = story.held
                if not once:
                    keep_serving(story.stage)
        except KeyboardInterrupt:
            note("the server has ended and its folder is gone")
            if held is None:
                return INTERRUPTED
        except SkepError as error:
            complain(error)
            return USER
    return OK if held else USER


@contextmanager
def _ending_in_order() -> Iterator[None]:
    """A terminal that closes and a polite kill end it as Ctrl-C does: with everything taken away."""

    def interrupt(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - the shape of a signal handler
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
