"""The last key that administers its tenants does not revoke itself by accident."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from skep.access.administering import KeyDesk
from skep.access.keys import Minted
from skep.client import Client
from skep.clock import Instant, seconds
from skep.config import AccessSettings
from skep.errors import Code, SkepError
from skep.model.key import EVERY, Grant, Verb
from skep.testing.server import RunningServer, running_server
from tests.support.process import run_skep

ADMIN = Grant(tuple(Verb), (EVERY,), (EVERY,))
READER = Grant((Verb.READ,), (EVERY,), (EVERY,))


@pytest.fixture
def server() -> Iterator[RunningServer]:
    with running_server(access=AccessSettings(required=True)) as server:
        yield server


def made(server: RunningServer, grant: Grant = ADMIN, expires_in: float | None = None) -> Minted:
    engine = server.engine
    until = None if expires_in is None else Instant(engine.now() + seconds(expires_in))
    return server.run(KeyDesk(engine.access, engine.now).make(None, "k", [grant], created_by="me", expires_at=until))


def revoke(server: RunningServer, by: Minted, key: Minted, *, force: bool = False) -> Code | None:
    with Client(server.url, token=by.text) as client:
        try:
            client.revoke_key(key.record.id, force=force)
        except SkepError as error:
            return error.code
    return None


def test_the_last_admin_key_revokes_itself_only_when_told_to(server: RunningServer) -> None:
    last, reader, of_tenant = made(server), made(server, READER), made(server, Grant(tuple(Verb), ("acme",), (EVERY,)))

    assert revoke(server, last, last) is Code.LAST_ADMIN_KEY
    assert revoke(server, last, reader) is None
    assert revoke(server, of_tenant, of_tenant) is None, "the other one administers its tenant, too"
    assert revoke(server, last, last, force=True) is None
    assert revoke(server, last, last) is Code.UNAUTHENTICATED


def test_an_admin_key_goes_when_another_one_counts(server: RunningServer) -> None:
    first, second, third = made(server), made(server), made(server)

    assert revoke(server, first, second) is None
    assert revoke(server, first, first) is None
    assert revoke(server, third, third) is Code.LAST_ADMIN_KEY


def test_an_admin_of_one_tenant_does_not_stand_in_for_one_of_all(server: RunningServer) -> None:
    everywhere = made(server)
    made(server, Grant(tuple(Verb), ("acme",), (EVERY,)))
    made(server, Grant((Verb.ADMIN,), (EVERY,), ("orders",)))

    assert revoke(server, everywhere, everywhere) is Code.LAST_ADMIN_KEY


def test_the_command_says_force_and_takes_it(server: RunningServer, tmp_path: Path) -> None:
    last = made(server)
    environ = {**os.environ, "SKEP_URL": server.url, "SKEP_TOKEN": last.text}

    def run(*flags: str) -> subprocess.CompletedProcess[str]:
        return run_skep("key", "revoke", last.record.id, *flags, cwd=tmp_path, env=environ, text=True, timeout=120)

    refused = run()
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "skep: LAST_ADMIN_KEY: " in refused.stderr
    assert "--force" in refused.stderr
    assert run("--force").returncode == 0
