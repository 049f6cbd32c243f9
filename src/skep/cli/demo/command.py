"""`skep demo`: from start to end, leaving nothing behind."""

from __future__ import annotations

from skep.cli.connection import Flag
from skep.cli.exits import INTERRUPTED, OK, USER, complain, note
from skep.cli.interrupts import ending_in_order
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
    with ending_in_order():
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
