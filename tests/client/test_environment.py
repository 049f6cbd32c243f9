"""A client that is given no address takes it, its tenant and its token from the environment, as the command does."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import skep
from skep.client.settings import DEFAULT_URL, ClientSettings
from tests.client.scripted import ScriptedServer, stored


def settings_of_worker(*urls: str, **options: str) -> ClientSettings:
    return skep.Worker(*urls, **options)._settings  # type: ignore[arg-type] # as any caller may give them


def settings_of_client(*urls: str, **options: str) -> ClientSettings:
    with skep.Client(*urls, **options) as client:  # type: ignore[arg-type] # as above
        return client.settings


def settings_of_async_client(*urls: str, **options: str) -> ClientSettings:
    return skep.AsyncClient(*urls, **options).settings  # type: ignore[arg-type] # as above


Settings = Callable[..., ClientSettings]
every = pytest.mark.parametrize("settings_of", [settings_of_client, settings_of_async_client, settings_of_worker])


@pytest.fixture(autouse=True)
def _nothing_around(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SKEP_URL", "SKEP_TENANT", "SKEP_TOKEN"):
        monkeypatch.delenv(name, raising=False)


@every
def test_without_variables_it_is_the_server_on_this_machine(settings_of: Settings) -> None:
    found = settings_of()

    assert (found.urls, found.tenant, found.token) == ((DEFAULT_URL,), "default", None)


@every
def test_the_variables_say_where_and_who(settings_of: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SKEP_URL", "http://a:1, http://b:2/")
    monkeypatch.setenv("SKEP_TENANT", "acme")
    monkeypatch.setenv("SKEP_TOKEN", "secret")

    found = settings_of()

    assert (found.urls, found.tenant, found.token) == (("http://a:1", "http://b:2"), "acme", "secret")


@every
def test_what_is_given_goes_before_a_variable(settings_of: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SKEP_TENANT", "acme")
    monkeypatch.setenv("SKEP_TOKEN", "secret")

    found = settings_of(tenant="other", token="mine")

    assert (found.urls, found.tenant, found.token) == ((DEFAULT_URL,), "other", "mine")


@every
def test_a_server_that_is_named_gets_nobody_elses_token(settings_of: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SKEP_URL", "http://a:1")
    monkeypatch.setenv("SKEP_TENANT", "acme")
    monkeypatch.setenv("SKEP_TOKEN", "secret")

    found = settings_of("http://c:3")

    assert (found.urls, found.tenant, found.token) == (("http://c:3",), "default", None)


@every
def test_an_empty_variable_is_none(settings_of: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SKEP_URL", "SKEP_TENANT", "SKEP_TOKEN"):
        monkeypatch.setenv(name, "")

    found = settings_of()

    assert (found.urls, found.tenant, found.token) == ((DEFAULT_URL,), "default", None)


def test_the_server_hears_the_tenant_and_the_token(monkeypatch: pytest.MonkeyPatch) -> None:
    with ScriptedServer(stored) as server:
        monkeypatch.setenv("SKEP_URL", server.url)
        monkeypatch.setenv("SKEP_TENANT", "acme")
        monkeypatch.setenv("SKEP_TOKEN", "secret")
        with skep.Client() as client:
            client.push("orders", 1)

    [request] = server.requests
    assert (request.headers["skep-tenant"], request.headers["authorization"]) == ("acme", "Bearer secret")
