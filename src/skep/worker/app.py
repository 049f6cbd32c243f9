"""`skep.App`: a spec, and the functions that carry out its commands."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self, TypeVar, Unpack

from skep import spec
from skep.client.settings import CLIENT_DEFAULTS, ClientOptions, client_settings
from skep.client.spelling import spelled_out
from skep.errors import Code, SkepError
from skep.runtime.loop import run
from skep.spec.problems import nearest
from skep.worker.functions import CommandFunction, command_function
from skep.worker.working import Working, WorkOptions

F = TypeVar("F", bound=Callable[..., Any])


class App:
    """An app that a worker can run: load its spec, decorate functions with `command`, and `work`."""

    def __init__(self, spec_: spec.App) -> None:
        self.spec = spec_
        self.functions: dict[str, CommandFunction] = {}
        self._working: Working | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """The app of a spec file: spec language (.skep), TOML or JSON. INVALID_SPEC lists all problems."""
        file = Path(path)
        try:
            text = file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise SkepError(Code.INVALID_REQUEST, f"{file} cannot be read: {error}") from error
        return cls(spec.load(text, str(path)))

    @property
    def name(self) -> str:
        """The app's name in the spec."""
        return self.spec.name

    def command(self, name: str) -> Callable[[F], F]:
        """Let the decorated function, plain or async, carry out a command: ``@app.command("Incident.CreateIncident")``.

        It is called with the command's input, as the type its parameter is annotated with, and with the message if it takes
        two arguments. Returning acks, and what it returns is `then`'s ``result``; an exception nacks; `skep.Reject`,
        `skep.Retry` and `skep.RetryAt` say more. For a webhook without a queue the server of `skep run` calls it, with the
        input alone, and what it returns is the answer.
        """
        calls = [queue.map_to for queue in self.spec.queues.values()]
        calls += [webhook.command for webhook in self.spec.webhooks.values()]
        wanted = {f"{call.entity}.{call.command}" for call in calls if call is not None}
        if name not in wanted:
            near = nearest(name, wanted, 0)
            known = f"; did you mean {near}?" if near else f"; there are {', '.join(sorted(wanted)) or 'none'}"
            raise SkepError(Code.INVALID_REQUEST, f"no queue or webhook of {self.name} leads to {name!r}{known}")
        if name in self.functions:
            raise SkepError(Code.INVALID_REQUEST, f"{name} has a function already")

        def register(function: F) -> F:
            self.functions[name] = command_function(name, function)
            return function

        return register

    @spelled_out(ClientOptions, CLIENT_DEFAULTS)
    def work(
        self,
        url: str | Sequence[str] | None = None,
        *,
        until_empty: bool = False,
        allow_private: bool = False,
        environment: Mapping[str, str] | None = None,
        **options: Unpack[ClientOptions],
    ) -> int:
        """Work until `stop`, SIGTERM or SIGINT; with ``until_empty`` until no message can be popped. Returns the number of messages done.

        ``allow_private`` lets deliveries go to private and loopback addresses. Secrets come from ``environment``, or from that
        of the process.
        """
        given = WorkOptions(until_empty=until_empty, allow_private=allow_private, environment=environment, signals=True)
        return run(self._work(given, url, options))

    @spelled_out(ClientOptions, CLIENT_DEFAULTS)
    async def work_async(
        self,
        url: str | Sequence[str] | None = None,
        *,
        until_empty: bool = False,
        allow_private: bool = False,
        environment: Mapping[str, str] | None = None,
        **options: Unpack[ClientOptions],
    ) -> int:
        """As `work`, in a running event loop. The caller handles signals."""
        given = WorkOptions(until_empty=until_empty, allow_private=allow_private, environment=environment)
        return await self._work(given, url, options)

    def stop(self) -> None:
        """Finish the messages that were begun, return the others to the queue, and end `work`. Any thread may call this."""
        if self._working is not None and self._loop is not None:
            self._loop.call_soon_threadsafe(self._working.stop)

    async def _work(self, given: WorkOptions, url: str | Sequence[str] | None, options: ClientOptions) -> int:
        if self._working is not None:
            raise SkepError(Code.INVALID_REQUEST, "the app is being worked on already")
        self._loop = asyncio.get_running_loop()
        self._working = Working(self.spec, self.functions, client_settings(url, options), given)
        try:
            return await self._working.run()
        finally:
            self._working = self._loop = None
