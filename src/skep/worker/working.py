"""A worker at work on an app: a runner for each queue that has something to do, for one tenant or for all that come."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, nullcontext, suppress
from random import Random

from msgspec import Struct, structs

from skep.client.async_client import AsyncClient
from skep.client.settings import ClientSettings
from skep.client.worker.loop import run_loops
from skep.client.worker.source import Source
from skep.clock import Clock, SystemClock
from skep.errors import Code, SkepError
from skep.runtime.signals import stop_signals
from skep.spec import App, from_json
from skep.spec.secrets import delivery_uses, secret_faults
from skep.worker.addresses import Resolve, look_up
from skep.worker.claims import Claims
from skep.worker.committing import Committing
from skep.worker.delivery import Deliverer
from skep.worker.execute import Execution
from skep.worker.functions import CommandFunction
from skep.worker.plan import Plan, lease_seconds, plans
from skep.worker.runner import CONCURRENCY, Runner

LEASE_SECONDS = 60.0
"""The default lease time. Leases are renewed, so this decides how soon a crash is noticed."""
TENANTS_SECONDS = 5.0
"""How soon the messages of a new tenant are noticed."""

log = logging.getLogger("skep.worker")


class WorkOptions(Struct, frozen=True, kw_only=True):
    """How to work. ``tenants`` are those to work for; None means the client's own, or all when the app takes tenants."""

    until_empty: bool = False
    allow_private: bool = False
    environment: Mapping[str, str] | None = None
    signals: bool = False
    tenants: list[str] | None = None
    clock: Clock | None = None
    resolve: Resolve = look_up


class Working:
    """One run of a worker."""

    def __init__(
        self, app: App, functions: Mapping[str, CommandFunction], settings: ClientSettings, options: WorkOptions
    ) -> None:
        self._app = app
        # Its leases say whose they are: the app's, when nobody gave the worker a name.
        self._settings = structs.replace(settings, client_name=settings.client_name or app.name)
        self._options = options
        self._clock = options.clock or SystemClock()
        self._environment = os.environ if options.environment is None else options.environment
        self._stopping = asyncio.Event()
        self._first: AsyncClient | None = None
        self._clients: dict[str, AsyncClient] = {}
        self._stack = AsyncExitStack()
        self._claims = Claims()
        self._random = Random()
        self._check_secrets()
        self._plans = plans(app, functions)
        if not self._plans:
            raise SkepError(
                Code.INVALID_REQUEST,
                f"no queue of {app.name} has anything to do: map_to, then or deliver would say what",
            )

    def stop(self) -> None:
        """Finish the messages that were begun, and end."""
        self._stopping.set()

    async def run(self) -> int:
        """Work; returns how many messages were done."""
        in_main = threading.current_thread() is threading.main_thread()
        signals = stop_signals(self.stop) if self._options.signals and in_main else nullcontext()
        async with self._stack:
            with signals:
                runners = self._runners()
                await self._meet_tenants(runners)
                await self._compare()
                log.info("%s is being worked on: %s", self._app.name, ", ".join(one.plan.queue for one in runners))
                meeting = asyncio.create_task(self._keep_meeting(runners)) if self._takes_all else None
                try:
                    return await run_loops(
                        [one.loop for one in runners], self._stopping, until_empty=self._options.until_empty,
                        look_again=lambda: self._meet_tenants(runners),
                    )  # fmt: skip
                finally:
                    if meeting is not None:
                        meeting.cancel()
                        await asyncio.gather(meeting, return_exceptions=True)

    async def _compare(self) -> None:
        """Log a warning when the server has another spec than this worker, or none."""
        client = await self._client(self._settings.tenant)
        try:
            applied = await client.app(self._app.name)
        except SkepError as error:
            if error.code is not Code.APP_NOT_FOUND:
                raise
            log.warning("%s is not applied on the server: skep spec apply would do it", self._app.name)
            return
        if from_json(bytes(applied.document).decode()) != self._app:
            log.warning("%s is not what is applied on the server: apply it, or restart the worker", self._app.name)

    def _runners(self) -> list[Runner]:
        threads = sum(
            one.spec.concurrency or CONCURRENCY for one in self._plans if one.function and not one.function.is_async
        )
        pool = ThreadPoolExecutor(max(1, threads), thread_name_prefix="skep-command")
        self._stack.callback(pool.shutdown)
        return [self._runner(plan, pool) for plan in self._plans]

    def _runner(self, plan: Plan, pool: ThreadPoolExecutor) -> Runner:
        work: Committing | Execution
        if plan.entity is not None:
            work = Committing(plan, self._clock, self._claims, self._random)
        else:
            work = Execution(plan, self._clock, pool, self._deliverer(plan))
        return Runner(plan, work, self._clock, self._stopping)

    def _deliverer(self, plan: Plan) -> Deliverer | None:
        if plan.spec.deliver is None:
            return None
        return Deliverer(
            plan.spec.deliver, self._environment, self._clock, allow_private=self._options.allow_private,
            resolve=self._options.resolve,
        )  # fmt: skip

    def _check_secrets(self) -> None:
        """Check the secrets of deliveries. The worker verifies no signatures, so it needs no others."""
        uses = [use for queue in self._app.queues.values() for use in delivery_uses(queue.deliver)]
        faults = {fault.use.variable: fault.message for fault in secret_faults(uses, self._environment)}
        if faults:
            raise SkepError(
                Code.INVALID_SETTING,
                f"{'; '.join(faults.values())}: the secrets that {self._app.name} needs for its deliveries",
                variables=sorted(faults),
            )

    @property
    def _takes_all(self) -> bool:
        takes_tenants = any(webhook.tenant is not None for webhook in self._app.webhooks.values())
        return takes_tenants and self._options.tenants is None

    async def _meet_tenants(self, runners: list[Runner]) -> None:
        """Give every runner a source for each tenant that it has none for yet."""
        for tenant in await self._tenants():
            client = await self._client(tenant)
            for runner in runners:
                rotation = runner.loop.rotation
                if rotation.lacks(tenant):
                    source = Source(client, runner.plan.queue, lease_seconds(runner.plan.spec, LEASE_SECONDS))
                    self._stack.push_async_callback(source.close)
                    rotation.add(source)

    async def _tenants(self) -> list[str]:
        if not self._takes_all:
            return self._options.tenants or [self._settings.tenant]
        client = await self._client(self._settings.tenant)
        return list(dict.fromkeys([self._settings.tenant, *[tenant async for tenant in client.tenants()]]))

    async def _keep_meeting(self, runners: list[Runner]) -> None:
        while True:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), TENANTS_SECONDS)
                return
            try:
                await self._meet_tenants(runners)
            except SkepError as error:
                log.warning("the tenants could not be asked for: %s", error)

    async def _client(self, tenant: str) -> AsyncClient:
        client = self._clients.get(tenant)
        if client is None:
            if self._first is None:
                self._first = await self._stack.enter_async_context(AsyncClient.like(self._settings, self._clock))
            # Over the connections of the first, or a worker of many tenants would have as many connections.
            client = self._clients[tenant] = self._first.for_tenant(tenant)
        return client
