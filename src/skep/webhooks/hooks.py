"""The webhooks of all applied apps, compiled when an app comes or changes, found by name.

A webhook whose secrets this server lacks or cannot use answers that it is unavailable. Its senders repeat their requests, and
no request is taken unverified.
"""

from __future__ import annotations

import structlog

from skep.apps.catalogue import Catalogue
from skep.apps.compiled import CompiledApp
from skep.errors import Code, SkepError
from skep.webhooks.compiled import CompiledWebhook, compile_webhook

log = structlog.get_logger("skep.webhooks")


class Hooks:
    """The webhooks of the applied apps."""

    def __init__(self, catalogue: Catalogue) -> None:
        self.catalogue = catalogue
        self._by_app: dict[str, tuple[CompiledApp, dict[str, CompiledWebhook | None]]] = {}
        self._found: dict[str, CompiledWebhook | None] = {}
        catalogue.on_change(self._take)
        self._take()

    def find(self, name: str) -> CompiledWebhook:
        """A webhook; WEBHOOK_NOT_FOUND when no app has it, WEBHOOK_UNAVAILABLE when it cannot be served here."""
        webhook = self._found.get(name)
        if webhook is not None:
            return webhook
        if name in self._found:
            raise SkepError(
                Code.WEBHOOK_UNAVAILABLE, f"this server lacks secrets of the webhook {name!r} that it can use"
            )
        raise SkepError(Code.WEBHOOK_NOT_FOUND, f"there is no webhook {name[:100]!r}")

    def _take(self) -> None:
        known, self._by_app = self._by_app, {}
        for name, app in self.catalogue.apps.items():
            same = name in known and known[name][0] is app
            self._by_app[name] = known[name] if same else (app, self._compiled(app))
        self._found = {name: webhook for _, hooks in self._by_app.values() for name, webhook in hooks.items()}

    def _compiled(self, app: CompiledApp) -> dict[str, CompiledWebhook | None]:
        found: dict[str, CompiledWebhook | None] = {}
        for name, webhook in app.app.webhooks.items():
            try:
                found[name] = compile_webhook(app, name, webhook, self.catalogue.environment)
            except SkepError as error:
                log.error("a webhook cannot be served", app=app.name, webhook=name, error=error.message)
                found[name] = None
        return found
