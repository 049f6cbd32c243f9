"""The screens in the order of the menu, with the key that leads to each after a `g`."""

from __future__ import annotations

from typing import NamedTuple


class Screen(NamedTuple):
    """A screen of the menu."""

    name: str
    title: str
    path: str
    key: str


SCREENS = (
    Screen("overview", "Overview", "", "o"),
    Screen("queues", "Queues", "queues", "q"),
    Screen("messages", "Messages", "messages", "m"),
    Screen("traces", "Traces", "traces", "t"),
    Screen("consumers", "Consumers", "consumers", "c"),
    Screen("dead-letters", "Dead letters", "dead-letters", "d"),
    Screen("operations", "Operations", "operations", "x"),
    Screen("pipelines", "Pipelines", "pipelines", "p"),
)
