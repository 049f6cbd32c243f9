"""The composition root: puts the parts of a server together. Its store is opened by `skep.server.stores`."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import sys
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from random import Random, SystemRandom
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import structlog

from skep.access import presence
from skep.access.gate import Gate
from skep.apps.catalogue import Catalogue
from skep.apps.schedules import Schedules
from skep.clock import Clock, SystemClock
from skep.config import AccessSettings, EngineSettings, ServerSettings
from skep.crypto.master import MasterKeys
from skep.crypto.sources import load_master_keys
from skep.engine import Engine
from skep.errors import Code, SkepError
from skep.http.access_log import AccessLog
from skep.http.app import HttpApp, Pages
from skep.http.connection.address import is_exposed, local_url
from skep.http.connection.hosts import Hosts
from skep.http.connection.listening import Listener
from skep.http.connection.refusal import TellRefusal
from skep.http.queen.app import QueenApp
from skep.http.queen.door import refuse as tell_queens_client
from skep.http.request.statuses import error_answer
from skep.http.spans import RequestSpans
from skep.ids import IdMint
from skep.observe.tally import NOTE_SECONDS, Tally
from skep.runtime.private_files import account, opened_to_others
from skep.server.stores import is_shared, open_store, private_paths, spool_folder, sqlite_file, store_url
from skep.server.telemetry import open_telemetry, sending
from skep.store.remote.store import remote_store
from skep.webhooks.functions import FunctionsByName

if TYPE_CHECKING:  # the extra `access` need not be installed
    from skep.access.tokens import Tokens

OPEN_ACCESS = (
    "nobody is asked for a key: whoever reaches this server may do anything with it; to change that, make a key with: "
    "skep key create --role admin, and start the server anew (if the setting access.required is false, remove it)"
)

log = structlog.get_logger("skep.server")


def secret_paths(settings: ServerSettings) -> list[Path]:
    """The files with secrets that the settings name."""
    found, (kind, _, place) = list[Path](), (settings.encryption.master_keys or "").partition(":")
    if kind == "file":
        found.append(Path(place))
    if settings.access.jwt_algorithms == "HS256" and settings.access.jwt_keys is not None:
        found.append(Path(settings.access.jwt_keys))
    return found


def warn_of_loose_secrets(paths: Iterable[Path]) -> None:
    """Warn about files with secrets that other accounts can read."""
    for path, cure in opened_to_others(paths).items():
        log.warning("other accounts of this machine can get at a secret", path=str(path), cure=cure)


def _warn_of_loose_files(settings: ServerSettings, catalogue: Catalogue) -> None:
    for path, cure in opened_to_others(private_paths(settings)).items():
        log.warning("other accounts of this machine can get at the store", path=str(path), cure=cure)
    warn_of_loose_secrets([*secret_paths(settings), *catalogue.secret_files()])


@asynccontextmanager
async def open_engine(
    url: str,
    settings: EngineSettings | None = None,
    *,
    clock: Clock | None = None,
    random: Random | None = None,
    connections: int | None = None,
    log_cache_bytes: int | None = None,
    spool_folder: Path | None = None,
    masters: MasterKeys | None = None,
    owner: Path | None = None,
) -> AsyncIterator[Engine]:
    """A started engine on a store; leaving it stops the engine first, then closes the store.

    ``connections`` bounds those to PostgreSQL, and ``log_cache_bytes`` what is kept of its logs in memory; pushes are kept in
    ``spool_folder`` while it is away. ``masters`` wrap the keys of encrypted queues. ``owner`` is the socket of the process that has the
    SQLite file, where several share it.
    """
    clock = clock or SystemClock()
    settings = settings or EngineSettings()
    if (is_shared(url) or owner is not None) and not settings.shared:
        settings = msgspec.structs.replace(settings, shared=True)
    store = open_store(url, clock, connections, log_cache_bytes) if owner is None else remote_store(owner)
    await store.open()
    try:
        engine = Engine(store, clock, IdMint(clock), random or SystemRandom(), settings, spool_folder, masters)
        await engine.start()
        try:
            yield engine
        finally:
            await engine.stop()
    finally:
        await store.close()


class Owned(msgspec.Struct):
    """An SQLite file that the owner process holds: the owner's socket, and the presence file with the server's address."""

    socket: str
    presence: presence.Presence | None


class Sockets(NamedTuple):
    """The bound sockets of a server: those of the main port, and of the port for clients of Queen."""

    main: list[socket.socket]
    queen: Sequence[socket.socket] = ()


class Opened(NamedTuple):
    """The parts of an open server."""

    engine: Engine
    catalogue: Catalogue
    schedules: Schedules


@asynccontextmanager
async def open_server(
    url: str,
    settings: EngineSettings | None = None,
    *,
    clock: Clock | None = None,
    connections: int | None = None,
    log_cache_bytes: int | None = None,
    environment: Mapping[str, str] | None = None,
    require_secrets: bool = True,
    spool_folder: Path | None = None,
    masters: MasterKeys | None = None,
    owner: Path | None = None,
) -> AsyncIterator[Opened]:
    """An engine with the applied apps of its store, their types, and their schedules.

    INVALID_SPEC when an app names secrets that are not there or cannot be used, unless they are not required.
    """
    clock = clock or SystemClock()
    async with open_engine(
        url,
        settings,
        clock=clock,
        connections=connections,
        log_cache_bytes=log_cache_bytes,
        spool_folder=spool_folder,
        masters=masters,
        owner=owner,
    ) as engine:
        catalogue = Catalogue(engine, clock, os.environ if environment is None else environment)
        await catalogue.load()
        _check_secrets(catalogue, require_secrets)
        schedules = Schedules(engine, catalogue, clock)
        catalogue.start()
        schedules.start()
        try:
            yield Opened(engine, catalogue, schedules)
        finally:
            await schedules.stop()
            await catalogue.stop()


async def open_gate(
    engine: Engine, clock: Clock, settings: AccessSettings, *, is_exposed: bool, insecure: bool = False
) -> Gate | None:
    """The gate, with the keys loaded; None when the server asks for no keys.

    By default a server has a gate when it listens beyond loopback, or when the store has had a key, or when the settings name an issuer
    of tokens. The store remembers that it had a key: after the last key has expired, the gate stays, and lets nobody in.
    """
    if settings.required is False:
        return None
    tokens = None if settings.jwt_algorithms is None else await _open_tokens(settings, clock)
    gate = Gate(engine.access, clock, settings, tokens, engine.encryption.open_secret)
    await gate.load()
    is_closed = await engine.access.is_closed()
    if settings.required or tokens is not None or gate.keys:
        if not is_closed:
            await engine.access.set_closed(True)
    elif not is_closed and (insecure or not is_exposed):
        return None
    if gate.keys == 0 and tokens is None:
        log.warning(
            "no key counts any more, so nobody gets in; make one with: skep key create --role admin, or stop the server and ask "
            "nobody for one again: skep access open"
            if is_closed
            else "there is no key yet, so nobody gets in; make one with: skep key create --role admin"
        )
    return gate


def _warn_of_open_access() -> None:
    """Warn on every start, at any log level, that everyone may do anything."""
    log.warning(OPEN_ACCESS)
    if not logging.getLogger("skep.server").isEnabledFor(logging.WARNING):
        sys.stderr.write(f"skep: warning: {OPEN_ACCESS}\n")


async def _open_tokens(settings: AccessSettings, clock: Clock) -> Tokens:
    try:
        from skep.access.keysets import KeySource
        from skep.access.tokens import Tokens
    except ModuleNotFoundError:
        raise SkepError(Code.INVALID_SETTING, "tokens need the extra: pip install 'skep[access]'") from None
    source = KeySource(settings, clock)
    await source.start()
    return Tokens(settings, clock, source)


def _check_secrets(catalogue: Catalogue, required: bool) -> None:
    unusable = catalogue.unusable_secrets()
    if unusable and required:
        raise SkepError(
            Code.INVALID_SPEC,
            f"applied apps name secrets that this server cannot use: {'; '.join(unusable.values())}; set these variables, "
            "or start without them by --set require_secrets=false",
            variables=list(unusable),
        )
    if unusable:
        log.warning(
            "applied apps name secrets that this server cannot use",
            variables=list(unusable),
            problems=list(unusable.values()),
        )


def pages_of(engine: Engine, path_prefix: str = "", gate: Gate | None = None) -> Pages | None:
    """The dashboard, if its extra is installed."""
    try:
        from skep.dashboard import Dashboard
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in ("jinja2", "markupsafe"):
            raise
        return None
    return Dashboard(engine, path_prefix, gate)


async def serve(
    settings: ServerSettings,
    sockets: Sockets,
    stop: asyncio.Event,
    listening: Callable[[], None],
    tally: Tally | None = None,
    functions: FunctionsByName | None = None,
    own_token: str | None = None,
    owned: Owned | None = None,
) -> None:
    """Serve a store over HTTP until ``stop`` is set. Then answer waiting pops, finish running requests, and close.

    The order matters: no client comes before the store is open, and none is left when the engine stops. A caller with
    ``own_token`` may do anything. With ``owned`` another process holds the SQLite file, and several processes serve it.
    """
    clock = SystemClock()
    source = settings.encryption.master_keys
    masters = None if source is None else await asyncio.to_thread(load_master_keys, source, os.environ)
    async with _open_by_settings(settings, clock, masters, owned) as (engine, catalogue, _):
        _warn_of_loose_files(settings, catalogue)
        gate = await open_gate(
            engine, clock, settings.access, is_exposed=any(map(is_exposed, sockets.main)), insecure=settings.insecure
        )
        if gate is not None and own_token is not None:
            gate.trust(own_token, "skep:run")
        pages = _pages(engine, settings, gate)
        telemetry = open_telemetry(settings, clock)
        app = _app(engine, catalogue, settings, tally, functions, pages, gate, telemetry)
        listeners = _listeners(app, engine, sockets, settings, is_guarded=gate is not None)

        def tell() -> None:
            if owned is not None:
                _trust(app, gate, owned.presence)
            elif database is not None and (here := announce(sockets.main, database)) is not None:
                _trust(app, gate, here)
            listening()
            if gate is None:
                _warn_of_open_access()

        database = sqlite_file(settings)
        beside = [asyncio.create_task(_watch(listeners, stop, tell)), asyncio.create_task(_note(app))]
        if pages is not None:
            beside.append(asyncio.create_task(pages.prepare()))
        try:
            async with sending(telemetry, app, engine, settings):
                await asyncio.gather(*(listener.listen() for listener in listeners))
        finally:
            if owned is None and app.holder_secret is not None and database is not None:
                presence.withdraw(presence.file_of(database))
            for task in beside:
                task.cancel()
            if tally is not None:
                tally.note(app.meter)


def _open_by_settings(
    settings: ServerSettings, clock: Clock, masters: MasterKeys | None, owned: Owned | None
) -> AbstractAsyncContextManager[Opened]:
    return open_server(
        store_url(settings),
        settings.engine,
        clock=clock,
        connections=settings.store_connections,
        log_cache_bytes=settings.log_cache_bytes,
        require_secrets=settings.require_secrets,
        spool_folder=spool_folder(settings),
        masters=masters,
        owner=None if owned is None else Path(owned.socket),
    )


def _pages(engine: Engine, settings: ServerSettings, gate: Gate | None) -> Pages | None:
    pages = pages_of(engine, settings.path_prefix, gate) if settings.dashboard else None
    if settings.dashboard and pages is None:
        # Said by the server, and not where pages are looked for: a test's or a program's own server prints nothing of it.
        log.info("no dashboard: it needs the extra, pip install 'skep[dashboard]'")
    return pages


def _app(
    engine: Engine,
    catalogue: Catalogue,
    settings: ServerSettings,
    tally: Tally | None,
    functions: FunctionsByName | None,
    pages: Pages | None,
    gate: Gate | None,
    spans: RequestSpans | None,
) -> HttpApp:
    days, prefix = settings.access.audit_days, settings.path_prefix
    return HttpApp(engine, catalogue, settings.http, tally, functions, pages, gate, days, prefix, spans)


def _listeners(
    app: HttpApp, engine: Engine, sockets: Sockets, settings: ServerSettings, *, is_guarded: bool
) -> list[Listener]:
    """The listeners of all ports."""
    listeners = [_listener(app, sockets.main, settings, engine.end_polls, error_answer, is_guarded=is_guarded)]
    if sockets.queen:
        door = QueenApp(app, engine)
        told = tell_queens_client
        listeners.append(_listener(door, sockets.queen, settings, door.end_polls, told, is_guarded=is_guarded))
    return listeners


def _listener(
    app: HttpApp | QueenApp,
    sockets: Sequence[socket.socket],
    settings: ServerSettings,
    end_polls: Callable[[], None],
    tell_refusal: TellRefusal,
    *,
    is_guarded: bool,
) -> Listener:
    return Listener(
        AccessLog(app) if settings.log_level == "debug" else app,
        sockets,
        before_drain=end_polls,
        limits=settings.http,
        hosts=Hosts(settings.http.hosts, is_guarded=is_guarded, listens_on=settings.host),
        drain_seconds=settings.drain_seconds,
        tell_refusal=tell_refusal,
    )


def announce(sockets: Sequence[socket.socket], database: Path) -> presence.Presence | None:
    """Write the presence file, by which `skep key` finds the server of an SQLite file; None when it cannot be written."""
    here = presence.new_presence(local_url(sockets[0]))
    path = presence.file_of(database)
    try:
        presence.announce(path, here)
    except OSError as error:
        log.warning("skep key will not find this server", path=str(path), error=error.strerror)
        return None
    return here


def _trust(app: HttpApp, gate: Gate | None, here: presence.Presence | None) -> None:
    """Let in callers that know the secret beside the database: an account that can read the secret can open the database, too."""
    if here is None:
        return
    app.holder_secret = here.secret
    if gate is not None:
        gate.trust(here.secret, f"cli:{account()}")


async def _note(app: HttpApp) -> None:
    """Write the counters of this process for the other processes on the port."""
    while app.tally is not None:
        app.tally.note(app.meter)
        await asyncio.sleep(NOTE_SECONDS)


async def _watch(listeners: Sequence[Listener], stop: asyncio.Event, listening: Callable[[], None]) -> None:
    for listener in listeners:
        await listener.listening.wait()
    listening()
    await stop.wait()
    for listener in listeners:
        listener.should_exit = True
