"""One module per screen. A view makes a page; an action carries out a form and names the next page."""

from __future__ import annotations

from skep.dashboard.site import Action, Page
from skep.dashboard.views import (
    consumers,
    dead_letters,
    deletion,
    find,
    messages,
    operations,
    overview,
    pipelines,
    queue,
    queues,
    scheduled,
    tenants,
    traces,
)

_MODULES = (
    overview, find, queues, queue, scheduled, messages, deletion, traces, consumers, dead_letters, operations, pipelines, tenants,
)  # fmt: skip


def views() -> list[Page]:
    """All pages."""
    return [page for module in _MODULES for page in module.PAGES]


def actions() -> list[tuple[str, Action]]:
    """All form actions: path and function."""
    return [action for module in _MODULES for action in module.ACTIONS]
