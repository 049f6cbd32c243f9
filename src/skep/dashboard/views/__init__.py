"""One module per screen. A view makes a page of what it finds; a deed does what a form asks for and says where to go next."""

from __future__ import annotations

from skep.dashboard.site import Deed, Page
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


def deeds() -> list[tuple[str, Deed]]:
    """All that forms do: path, deed."""
    return [deed for module in _MODULES for deed in module.DEEDS]
