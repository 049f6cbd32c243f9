"""The options of a client, with their defaults."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Literal, TypedDict, cast
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from skep.errors import Code, SkepError
from skep.model import DEFAULT_TENANT

DEFAULT_URL = "http://127.0.0.1:6632"
MAX_TIMEOUT_SECONDS = 1e9
"""The longest duration, thirty years: the clocks of operating systems take not much more."""
URL_VARIABLE, TENANT_VARIABLE, TOKEN_VARIABLE = "SKEP_URL", "SKEP_TENANT", "SKEP_TOKEN"
"""The variables with the URL, tenant and token of a client without an address. The command line uses them, too."""


class ClientSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a client behaves. Several URLs are servers of one store; the first is preferred."""

    urls: tuple[str, ...] = (DEFAULT_URL,)
    tenant: str = DEFAULT_TENANT
    """The tenant of the queues."""
    token: str | None = None
    """The key or token; it is sent as a bearer token."""
    client_name: str | None = None
    """The name of this client, sent with each pop and shown with the lease (default: the program's name)."""
    timeout_seconds: float = 30.0
    """How long one try may take from connecting to the last byte; a pop that waits may take its wait on top."""
    connect_timeout_seconds: float = 5.0
    """How long connecting may take."""
    attempts: int = 5
    """Tries of one call, the first included. Each goes round all servers before there is a pause."""
    backoff_seconds: float = 0.1
    """The pause after the first failed try; it doubles with each further one, with jitter on top."""
    max_retry_delay: float = 30.0
    """The longest pause, also when the server asks for more by Retry-After."""
    retry_on_429: bool = True
    """Whether a call is tried again when the server is busy or a queue is full (429)."""
    honor_retry_after: bool = True
    """Whether the pause after a 429 is the one that the server asks for by Retry-After; else it is like any other."""
    queued_operation: Literal["return", "poll"] = "return"
    """Whether a queued operation (202) is returned as queued, or awaited."""
    poll_seconds: float = 0.1
    """The pause between two polls of an awaited operation."""
    poll_timeout_seconds: float = 30.0
    """How long an operation is awaited."""
    breaker_failures: int = 5
    """The number of failures in a row that opens the circuit of a server."""
    breaker_open_seconds: float = 10.0
    """How long an open circuit lets no call pass; then one call probes the server."""
    failback_seconds: float = 30.0
    """How long another server is used before the first one is tried again."""

    def __repr__(self) -> str:
        """Everything but the token: what is printed ends up in logs."""
        told = {name: getattr(self, name) for name in self.__struct_fields__}
        told["token"] = None if self.token is None else "***"
        return f"ClientSettings({', '.join(f'{name}={value!r}' for name, value in told.items())})"


class ClientOptions(TypedDict, total=False):
    """The settings of a client are described in docs/client.md and in `skep.client.settings.ClientSettings`."""

    tenant: str
    token: str | None
    client_name: str | None
    timeout_seconds: float
    connect_timeout_seconds: float
    attempts: int
    backoff_seconds: float
    max_retry_delay: float
    retry_on_429: bool
    honor_retry_after: bool
    queued_operation: Literal["return", "poll"]
    poll_seconds: float
    poll_timeout_seconds: float
    breaker_failures: int
    breaker_open_seconds: float
    failback_seconds: float


CLIENT_DEFAULTS = {field.name: field.default for field in msgspec.structs.fields(ClientSettings)}


def split_urls(text: str) -> tuple[str, ...]:
    """Several servers of one store, divided by commas."""
    return tuple(url.strip() for url in text.split(",") if url.strip())


def from_environment(options: ClientOptions, environment: Mapping[str, str]) -> tuple[tuple[str, ...], ClientOptions]:
    """The address from the environment, and the options with the environment's tenant and token where they have none.

    An empty variable does not count. It counts only for a client that is given no address: a token is for the server beside it.
    """
    said: ClientOptions = {}
    if tenant := environment.get(TENANT_VARIABLE):
        said["tenant"] = tenant
    if token := environment.get(TOKEN_VARIABLE):
        said["token"] = token
    return split_urls(environment.get(URL_VARIABLE, "")) or (DEFAULT_URL,), {**said, **options}


def client_settings(urls: str | Sequence[str] | None, options: ClientOptions) -> ClientSettings:
    """The settings that the arguments of a client mean; INVALID_REQUEST when they cannot be meant."""
    if urls is None:
        urls, options = from_environment(options, os.environ)
    given = (urls,) if isinstance(urls, str) else tuple(urls)
    if not given:
        raise SkepError(Code.INVALID_REQUEST, "a client needs the URL of a server")
    settings = ClientSettings(urls=tuple(_base(url) for url in given), **options)
    if settings.attempts < 1 or settings.breaker_failures < 1:
        raise SkepError(Code.INVALID_REQUEST, "attempts and breaker_failures are at least 1")
    for seconds in (settings.timeout_seconds, settings.connect_timeout_seconds):
        if not 0 < seconds <= MAX_TIMEOUT_SECONDS:  # NaN is not either
            raise SkepError(Code.INVALID_REQUEST, f"a timeout is a number of seconds above 0, not {seconds}")
    if settings.queued_operation not in ("return", "poll"):
        raise SkepError(Code.INVALID_REQUEST, "queued_operation is return or poll")
    return settings


def client_options(settings: ClientSettings) -> ClientOptions:
    """The keyword arguments that mean these settings."""
    given = msgspec.structs.asdict(settings)
    del given["urls"]
    return cast("ClientOptions", given)


def _base(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.netloc or parts.query or parts.fragment:
        raise SkepError(Code.INVALID_REQUEST, f"a server is http://host:port or https://…, not {url!r}")
    return url.rstrip("/")
