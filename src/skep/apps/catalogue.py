"""The catalogue: the applied apps of a server, compiled, with quick look-ups by name.

The store has the truth. An app that is applied through this server takes effect at once; one that is applied through another server
within a second. A newer version that cannot be used is logged, and the old one stays, so that a server never loses an app.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import structlog

from skep.apps.compiled import CompiledApp, DeclaredQueue, compile_app
from skep.apps.conflicts import conflict_between
from skep.apps.fitting import fitted
from skep.apps.tenants import TenantQueues
from skep.clock import Clock, Instant, seconds
from skep.engine import Engine
from skep.errors import SkepError
from skep.model import DEFAULT_TENANT, NewMessage, QueueKey
from skep.model.record import AppRecord
from skep.spec import SpecError, from_json, off_loop_in_turns, secret_problems, validate
from skep.spec.allowance import Steps
from skep.spec.ir import Webhook
from skep.spec.problems import errors_of, render_all
from skep.spec.secrets import secret_faults, secret_files, secret_uses

REFRESH_SECONDS = 1.0
"""How long an app that was applied through another server may go unnoticed."""
MANY_MESSAGES = 500
"""More than these are looked at in the thread for evaluations from the start, so that other requests go on."""

log = structlog.get_logger("skep.apps")


class Catalogue:
    """The declarations of all applied apps. Load it before use; `start` keeps it up to date with other servers."""

    def __init__(self, engine: Engine, clock: Clock, environment: Mapping[str, str]) -> None:
        self.environment = environment
        self._engine = engine
        self._clock = clock
        self._revision = 0
        self._doubted = False
        self._apps: dict[str, CompiledApp] = {}
        self._queues: dict[str, DeclaredQueue] = {}
        self._tenants = TenantQueues(engine)
        self._listeners: list[Callable[[], None]] = []
        self._watching: asyncio.Task[None] | None = None
        self._loading = asyncio.Lock()
        self._broken: dict[str, int] = {}
        engine.caches.on_missed(self._doubt)

    @property
    def apps(self) -> Mapping[str, CompiledApp]:
        """The applied apps by name."""
        return self._apps

    @property
    def revision(self) -> int:
        """The store's revision of this state."""
        return self._revision

    def queue(self, key: QueueKey) -> DeclaredQueue | None:
        """The declaration of a queue; None for a tenant's queue unless the app is for all tenants."""
        declared = self._queues.get(key.name)
        if declared is None or (key.tenant != DEFAULT_TENANT and not declared.all_tenants):
            return None
        return declared

    def webhook(self, name: str) -> Webhook | None:
        """The declaration of a webhook."""
        return next((one.app.webhooks[name] for one in self._apps.values() if name in one.app.webhooks), None)

    def on_change(self, listener: Callable[[], None]) -> None:
        """Call ``listener`` whenever apps came, changed or went."""
        self._listeners.append(listener)

    def unusable_secrets(self) -> dict[str, str]:
        """The variables that applied apps name and whose secrets are not there or cannot be used, each with the reason."""
        uses = [use for compiled in self._apps.values() for use in secret_uses(compiled.app)]
        return dict(sorted((fault.use.variable, fault.message) for fault in secret_faults(uses, self.environment)))

    def secret_files(self) -> list[Path]:
        """The files that hold secrets of applied apps."""
        return secret_files([compiled.app for compiled in self._apps.values()], self.environment)

    async def load(self) -> None:
        """Load the apps of the store, if they have changed."""
        async with self._loading:
            revision = await self._engine.records.apps_revision()
            if revision != self._revision or self._doubted:
                self._doubted = False
                try:
                    # Read after the revision, so what is read is at least as new as what is noted.
                    await self._take(await self._engine.records.apps())
                except BaseException:
                    self._doubted = True
                    raise
                self._revision = revision

    def _doubt(self) -> None:
        """The store may have gone back, and reused a known revision for another app."""
        self._doubted = True

    def start(self) -> None:
        """Keep up with other servers."""
        if self._engine.settings.shared and self._watching is None:
            self._watching = asyncio.create_task(self._watch())

    async def stop(self) -> None:
        """Keep up no longer."""
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)
            self._watching = None

    async def _watch(self) -> None:
        told = False  # once, and not every second of an outage
        while True:
            await self._clock.sleep_until(Instant(self._clock.now() + seconds(REFRESH_SECONDS)))
            try:
                await self.load()
                told = False
            except SkepError as error:
                if not told:
                    log.warning("the applied apps could not be read; those known go on", code=error.code)
                told = True
            except Exception as error:
                log.error("the applied apps could not be taken in; those known go on", error=type(error).__name__)

    async def _take(self, records: Sequence[AppRecord]) -> None:
        found: dict[str, CompiledApp] = {}
        # In the order in which they were applied: of two that declare the same, the first one has it.
        for record in sorted(records, key=lambda record: record.revision):
            compiled = await self._compiled(record, found)
            if compiled is not None:
                found[record.name] = compiled
        self._apps = found
        self._queues = {name: queue for app in found.values() for name, queue in app.queues.items()}
        self._tenants.forget()
        self._engine.declared = self if self._queues else None
        for listener in self._listeners:
            listener()

    async def _compiled(self, record: AppRecord, others: Mapping[str, CompiledApp]) -> CompiledApp | None:
        known = self._apps.get(record.name)
        # A store that went back may give a revision a second time, but not at the same microsecond.
        if known is not None and (known.revision, known.applied_at) == (record.revision, record.applied_at):
            return known
        try:
            compiled = await asyncio.to_thread(compile_record, record)
            if (conflict := conflict_between(compiled.app, [other.app for other in others.values()])) is not None:
                raise conflict
        except SkepError as error:
            if self._broken.get(record.name) != record.revision:  # said once
                self._broken[record.name] = record.revision
                log.error(
                    "an applied app cannot be used; the version before goes on, if there is one",
                    app=record.name, revision=record.revision, error=error.message[:1_000],
                )  # fmt: skip
            return known
        # At the start whoever loads it decides what to do about them.
        if self._revision and (unusable := secret_problems(compiled.app, self.environment)):
            log.warning("an applied app names secrets that this server cannot use", app=record.name,
                        problems=[problem.message for problem in unusable])  # fmt: skip
        return compiled

    async def fit(self, messages: list[NewMessage]) -> list[NewMessage]:
        """The messages as they are stored; MESSAGE_INVALID names the first that does not fit."""
        is_large = len(messages) > MANY_MESSAGES
        found, missing = await off_loop_in_turns(lambda: self._fit(messages), is_large=is_large)
        for declared, key in missing:
            app = self._apps.get(declared.app)
            if app is not None:  # it may have gone meanwhile
                await self._tenants.make(app.app, key)
        return found

    async def prepare(self, key: QueueKey) -> None:
        """Create a tenant's queue by its spec, before it is used in another way than by a push."""
        declared = self.queue(key)
        app = None if declared is None else self._apps.get(declared.app)
        if app is not None and key.tenant != DEFAULT_TENANT and not self._tenants.knows(key):
            await self._tenants.make(app.app, key)

    def _fit(self, messages: list[NewMessage]) -> Steps[tuple[list[NewMessage], list[tuple[DeclaredQueue, QueueKey]]]]:
        found = messages
        missing: dict[QueueKey, DeclaredQueue] = {}
        key: QueueKey | None = None
        declared: DeclaredQueue | None = None
        for index, message in enumerate(messages):
            if message.queue is not key:
                key = message.queue
                declared = self.queue(key)
                if declared is not None and key.tenant != DEFAULT_TENANT and not self._tenants.knows(key):
                    missing[key] = declared
                if declared is not None and not declared.checks:
                    declared = None
            if declared is None:
                continue
            fit = fitted(declared, message, index)
            if fit is not message:
                if found is messages:
                    found = list(messages)
                found[index] = fit
            yield
        return found, [(declared, key) for key, declared in missing.items()]

    def looks_at(self, key: QueueKey) -> bool:
        """Whether messages of this queue are checked one by one, or the queue may have to be created first."""
        declared = self.queue(key)
        return declared is not None and (declared.checks or key.tenant != DEFAULT_TENANT)

    def names_messages(self, key: QueueKey) -> bool:
        """Whether messages of this queue get a transaction id."""
        declared = self.queue(key)
        return declared is not None and declared.repeat_key is not None


def compile_record(record: AppRecord) -> CompiledApp:
    """Compile an app of the store. It is checked again, since another version of Skep may have written it."""
    app = from_json(record.document, record.name)
    problems = errors_of(validate(app))
    if problems:
        raise SpecError(problems, render_all(problems, "", record.name))
    return compile_app(app, record.revision, record.applied_at)
