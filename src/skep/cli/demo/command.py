"""`skep demo`: run the demo from start to end, and leave nothing behind."""

from __future__ import annotations

from skep.cli.connection import Flag
from skep.cli.exits import INTERRUPTED, OK, USER, complain, note
from skep.cli.interrupts import ending_in_order
from skep.errors import SkepError


def demo(*, once: Flag = False, lake: str | None = None) -> int:
    """Watch an order story run through a server of its own, and on into Spark.

    The demo starts a server on SQLite in a temporary folder, runs
    producers and workers against it, and checks at the end that all
    figures add up. Then pipelines on Spark archive the messages and report
    on them. The server runs until Ctrl-C, which removes everything.

    For example:
        skep demo
        skep demo --once
        skep demo --once --lake shop-lake

    Parameters
    ----------
    once
        End after the story: exit code 0 if every check held, else 1.
    lake
        A folder for the tables and the report, which are kept.
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
