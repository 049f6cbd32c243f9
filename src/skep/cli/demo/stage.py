"""The parts that the demo's story needs: the server, its client, the screen, and the figures so far."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import skep
from skep.cli.demo import shop
from skep.cli.demo.checks import StoryFigures
from skep.client.settings import DEFAULT_URL
from skep.errors import Code, SkepError

if TYPE_CHECKING:
    from skep.cli.demo.screen import StoryScreen
    from skep.cli.demo.server import DemoServer
    from skep.wire.groups import GroupFigures

LOOK_SECONDS = 0.2
PATIENCE_SECONDS = 60.0
"""The longest time of an act; an act that takes longer has gone wrong."""


class StoryStage:
    """The parts that the story needs: the server, its client, the screen, and the figures so far."""

    def __init__(self, served: DemoServer, client: skep.Client, screen: StoryScreen) -> None:
        self.served = served
        self.client = client
        self.screen = screen
        self.orders = shop.placed_orders()
        self.bank = shop.Bank()
        self.seen = StoryFigures()

    def typed(self, command: str) -> str:
        """A command as a user would type it here."""
        program = "skep" if shutil.which("skep") else "./skep"
        default = self.served.url == DEFAULT_URL
        return f"{program} {command}" + ("" if default else f" --url {self.served.url}")

    def groups(self) -> list[GroupFigures]:
        """Every group's account, shown on the way."""
        known = [group for groups in shop.GROUPS.values() for group in groups]
        found = [one for one in self.client.groups() if one.consumer_group in known]
        found.sort(key=lambda one: (list(shop.QUEUES).index(one.queue), one.consumer_group))
        self.screen.figures(found)
        return found

    def watch_until(self, done: Callable[[dict[str, GroupFigures]], bool], what: str) -> None:
        """Refresh the screen until the condition holds."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not done({one.consumer_group: one for one in self.groups()}):
            if time.monotonic() > deadline:
                raise SkepError(
                    Code.INTERNAL, f"the story got stuck: {what} took more than {PATIENCE_SECONDS:g} seconds"
                )
            time.sleep(LOOK_SECONDS)

    def watch(self, seconds: float) -> None:
        """Refresh the screen for this long."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self.groups()
            time.sleep(LOOK_SECONDS)
